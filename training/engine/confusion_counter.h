// Counts a classifier's confusion matrix so that the sums over ranks are those over all samples.
#pragma once

#include <span>

#include "runtime/data/source.h"
#include "runtime/tensor/tensor.h"
#include "training/confusion.h"

namespace dtrain {

/// Counts one rank's share of one evaluation.
class ConfusionCounter {
 public:
  /// `field` is what is predicted (Task::predicted_field); null: nothing is counted. Borrowed.
  ConfusionCounter(const Field* field, int rank, int ranks);

  /// How many numbers write() writes; the same on every rank.
  std::size_t sum_count() const noexcept;
  /// `logits` [B, the field's values], `labels` i64 [B], of the samples `indices`; or, of a field [H, W],
  /// [B, values, H, W] and [B, H, W]. Copies logits (of pixels, the predicted classes) and labels to the
  /// host. Throws UsageError for other shapes.
  void add(const Tensor& logits, const Tensor& labels, std::span<const std::int64_t> indices);
  /// Writes what this rank counted into `sums`, which are to be added up over the ranks.
  void write(std::span<double> sums) const;
  /// Reads the sums over all ranks.
  Confusion read(std::span<const double> sums) const;

  bool counts() const noexcept { return classes_ > 0; }

 private:
  std::size_t table_size() const noexcept;
  void add_pixels(const Tensor& logits, const Tensor& labels);

  std::int64_t classes_;
  Dims shape_;  ///< the field's: [], or [H, W]
  std::size_t rank_, ranks_;
  Confusion own_;
};

}  // namespace dtrain
