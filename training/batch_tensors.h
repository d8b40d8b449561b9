// A loader's batch as tensors of the training device.
#pragma once

#include "runtime/data/loader.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

struct BatchTensors {
  Tensor inputs;  ///< f32 [B, C, H, W]
  Tensor labels;  ///< i64 [B]
};

/// On the CPU the tensors are the batch's own memory and keep it alive. On a GPU they are copies under way on
/// the compute stream: the caller keeps the batch until it has waited for something that comes later there.
inline BatchTensors to_tensors(const Batch& batch, const std::shared_ptr<Device>& device) {
  if (device->type() != DeviceType::cpu) {
    const auto copied = [&](const View& view) {
      Tensor result =
          Tensor::empty(view.shape, device, view.dtype,
                        view.is_contiguous() ? MemoryFormat::contiguous : MemoryFormat::channels_last);
      device->copy(result.view().data, view.data,
                   static_cast<std::size_t>(view.numel()) * size_of(view.dtype), CopyKind::host_to_device,
                   device->compute_stream());
      return result;
    };
    return {copied(batch.inputs), copied(batch.labels)};
  }
  return {Tensor::borrow(batch.inputs, device, batch.memory),
          Tensor::borrow(batch.labels, device, batch.memory)};
}

}  // namespace dtrain
