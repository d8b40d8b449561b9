// Samples by the batch: what a loader hands out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

/// Samples in pinned host memory, field by field. Copies share the memory; it goes back to the loader when
/// the last copy (and every tensor that keeps `memory`) is gone, so hold on to it until copies to a device
/// have finished.
///
///     const View& images = batch["image"];  // f32 [B, C, H, W]
///     const View& labels = batch["label"];  // i64 [B]
class Batch {
 public:
  Batch() = default;
  /// `views` has one view for each of `fields`, in order.
  Batch(std::shared_ptr<const std::vector<Field>> fields, std::vector<View> views)
      : fields_(std::move(fields)), views_(std::move(views)) {}

  /// The samples' values of one field: [B, …the field's shape], the rows of the longest sample where samples
  /// have lengths of their own, dense, row-major or channels-last as the loader was told. Valid as long as
  /// the batch. Throws UsageError with the fields there are when `field` is none of them.
  const View& operator[](std::string_view field) const;

  /// What a sample is made of; empty for a default-constructed batch.
  std::span<const Field> fields() const noexcept { return fields_ ? *fields_ : std::span<const Field>(); }
  /// One for each field, in order: of its dtype, or u8 where the loader was told that bytes will do.
  std::span<const View> views() const noexcept { return views_; }
  /// B: how many samples.
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(indices.size()); }

  std::span<const std::int64_t> indices;  ///< B indices into the source, in the same order
  std::int64_t number = 0;                ///< place in the order: samples number · batch_size onwards
  std::shared_ptr<void> memory;           ///< owner of views and indices

 private:
  std::shared_ptr<const std::vector<Field>> fields_;
  std::vector<View> views_;
};

}  // namespace dtrain
