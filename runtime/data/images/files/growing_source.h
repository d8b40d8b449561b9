// Pictures whose size grows along the epochs of a run, of any kind: with a class, clips, with masks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/data/source.h"

namespace dtrain {

/// The samples of another source, which are of other extents in training: at_epoch() says which.
class GrowingSource final : public Source {
 public:
  /// `at` makes the source that is read in an epoch: the same samples, in the same fields of any extents.
  GrowingSource(std::shared_ptr<const Source> source,
                std::function<std::shared_ptr<const Source>(std::int64_t epoch)> at)
      : source_(std::move(source)), at_(std::move(at)) {}

  std::string name() const override { return source_->name(); }
  std::int64_t size() const noexcept override { return source_->size(); }
  std::span<const Field> fields() const noexcept override { return source_->fields(); }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    source_->read(index, outputs, generator);
  }
  std::int64_t place_of(std::int64_t index) const noexcept override { return source_->place_of(index); }
  std::string file_of(std::int64_t index) const override { return source_->file_of(index); }
  bool in_memory() const noexcept override { return source_->in_memory(); }
  bool has_bytes(std::size_t field) const noexcept override { return source_->has_bytes(field); }
  std::optional<PixelNumbers> pixel_numbers(std::size_t field) const noexcept override {
    return source_->pixel_numbers(field);
  }
  std::shared_ptr<const Source> at_epoch(std::int64_t epoch) const override { return at_(epoch); }

 private:
  std::shared_ptr<const Source> source_;
  std::function<std::shared_ptr<const Source>(std::int64_t)> at_;
};

}  // namespace dtrain
