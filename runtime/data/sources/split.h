// What is trained on and what is held out: the two splits of a data set, and how one source is cut into them.
#pragma once

#include <memory>
#include <span>
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
  std::string file_of(std::int64_t index) const override { return source_->file_of(place(index)); }
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

/// How samples are cut into those that are trained on and those that are held out.
struct HoldOut {
  double share = 0;         ///< that is trained on, in (0, 1); 0: not said
  std::uint64_t seed = 0;   ///< of which samples
  int fold = 0, folds = 0;  ///< instead of a share: fold number `fold`, from 1, of so many is held out
  bool stratify = false;    ///< each class by itself, so that both sides have the same share of each
};

/// By a share as above; or by folds, which hold out each sample once: of each run of `folds` samples every
/// fold has a random one. By classes: of the samples of each class, by `labels`, one for each sample; a class
/// of one sample is trained on. Samples that are appended move none of those before them. Throws UsageError
/// where one side would be empty, for a fold that is none of 1 … folds, and where `labels` are asked for and
/// none.
SplitIndices split_indices(std::int64_t size, const HoldOut& how, std::span<const std::int64_t> labels = {});

/// Cuts `source` by split_indices(); the splits are named "train of …" and "test of …". Throws UsageError as
/// that does.
Splits split_source(const std::shared_ptr<const Source>& source, double share, std::uint64_t seed);
Splits split_source(const std::shared_ptr<const Source>& source, const HoldOut& how,
                    std::span<const std::int64_t> labels = {});

}  // namespace dtrain
