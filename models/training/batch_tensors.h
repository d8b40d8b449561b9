// A loader's batch as tensors of the training device.
#pragma once

#include "runtime/data/loader.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

struct BatchTensors {
  Tensor inputs;  ///< f32 [B, C, H, W]
  Tensor labels;  ///< i64 [B]
};

/// On the CPU the tensors are the batch's own memory and keep it alive.
inline BatchTensors to_tensors(const Batch& batch, const std::shared_ptr<Device>& device) {
  return {Tensor::borrow(batch.inputs, device, batch.memory),
          Tensor::borrow(batch.labels, device, batch.memory)};
}

}  // namespace dtrain
