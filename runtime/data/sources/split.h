// What is trained on and what is held out: the two splits of a data set, and how one source is cut into them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

enum class Split { train, test };

/// "train", "test"
std::string_view name_of(Split split) noexcept;

/// Both splits of a data set; what they share of files and memory is there once.
struct Splits {
  std::shared_ptr<const Source> train, test;
};

/// The samples `indices` of a source, in that order.
class SubsetSource final : public Source {
 public:
  /// Throws UsageError for a null source or an index outside it.
  SubsetSource(std::string name, std::shared_ptr<const Source> source, std::vector<std::int64_t> indices);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(indices_->size()); }
  std::span<const Field> fields() const noexcept override { return source_->fields(); }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    source_->read(place(index), outputs, generator);
  }
  std::int64_t place_of(std::int64_t index) const noexcept override {
    return source_->place_of(place(index));
  }
  bool in_memory() const noexcept override { return source_->in_memory(); }
  bool has_bytes(std::size_t field) const noexcept override { return source_->has_bytes(field); }
  std::optional<PixelNumbers> pixel_numbers(std::size_t field) const noexcept override {
    return source_->pixel_numbers(field);
  }
  std::shared_ptr<const Source> at_epoch(std::int64_t epoch) const override;

 private:
  std::int64_t place(std::int64_t index) const noexcept {
    return (*indices_)[static_cast<std::size_t>(index)];
  }

  std::string name_;
  std::shared_ptr<const Source> source_;
  std::shared_ptr<const std::vector<std::int64_t>> indices_;
};

/// Which of some samples are trained on and which are held out, both in ascending order.
struct SplitIndices {
  std::vector<std::int64_t> train, test;
};

/// Of `size` samples takes `share` (in (0, 1)) for training. On which side a sample is depends on its place,
/// `share` and `seed` alone: samples that are appended later move none of those before them. The samples are
/// cut into runs of 1 / min(share, 1 - share), and a random one of each is on the smaller side, so that its
/// size is within one of the exact share. (Of fewer samples than make one run one is taken; more may move
/// it.) Throws UsageError where the nearest whole number of samples would leave one side empty.
SplitIndices split_indices(std::int64_t size, double share, std::uint64_t seed);

/// Cuts `source` by split_indices(); the splits are named "train of …" and "test of …". Throws UsageError as
/// that does.
Splits split_source(const std::shared_ptr<const Source>& source, double share, std::uint64_t seed);

}  // namespace dtrain
