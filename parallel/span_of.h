// A tensor as collectives take it.
#pragma once

#include "collectives/communicator.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// All of `tensor`'s memory, which the caller keeps alive and untouched until the collective is done.
inline MemorySpan span_of(const Tensor& tensor) {
  return {.data = tensor.view().data,
          .count = static_cast<std::size_t>(tensor.numel()),
          .dtype = tensor.dtype(),
          .device = &tensor.device()};
}

}  // namespace dtrain
