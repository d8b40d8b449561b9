// A loader's batch as tensors of the training device.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// The fields of a batch by name. Copies share the tensors.
///
///     const Tensor loss = cross_entropy(network(batch["image"]), batch["label"]);
class BatchTensors {
 public:
  /// No samples, no fields.
  BatchTensors() = default;
  /// `tensors` has one tensor for each of `fields`, in order, each with the samples as its first dimension.
  BatchTensors(std::span<const Field> fields, std::vector<Tensor> tensors);

  /// [B, …the field's shape], the rows of the longest sample where samples have lengths of their own, of the
  /// field's dtype. Throws UsageError with the names there are when `field` is none of them.
  const Tensor& operator[](std::string_view field) const;
  bool contains(std::string_view field) const noexcept;
  /// Of the fields, in the source's order.
  std::span<const std::string> names() const noexcept { return names_; }
  /// One a field, in the source's order.
  std::span<const Tensor> tensors() const noexcept { return tensors_; }
  /// B: how many samples.
  std::int64_t size() const { return tensors_.empty() ? 0 : tensors_.front().size(0); }

 private:
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

/// Uninitialised, of the view's shape and memory format.
Tensor empty_for(const View& view, DType dtype, const std::shared_ptr<Device>& device);

/// values = bytes / 255, correctly rounded: what the source would have written. `bytes` u8, `values` f32, of
/// one shape, both on `device`; queued on its compute stream.
void decode_bytes(const View& bytes, const View& values, Device& device);

/// Each tensor has its field's dtype, whatever the batch carries it as (LoaderOptions::bytes). On the CPU the
/// tensors are the batch's own memory where it has that dtype, and keep it alive. On a GPU they are copies
/// under way on the compute stream: the caller keeps the batch until it has waited for something that comes
/// later there.
BatchTensors to_tensors(const Batch& batch, const std::shared_ptr<Device>& device);

}  // namespace dtrain
