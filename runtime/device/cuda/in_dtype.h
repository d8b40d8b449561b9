// An array in the dtype a kernel works in: the one given, or a dense copy of it. Parameters and their
// gradients may be f32 beside those of 16 bits; as under PyTorch's autocast they are rounded on the way.
#pragma once

#include <optional>

#include "runtime/device/cuda/memory/memory.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {

/// `is_input`: filled from `view`; else written back to it by finish(). A copy of rank 4 is channels-last, as
/// cuDNN wants it, so that its order and its dtype change in one launch. Null data stays null.
class InDtype {
 public:
  InDtype(Kernels& kernels, Memory& memory, const View& view, DType dtype, bool is_input)
      : kernels_(kernels), given_(view), used_(view) {
    if (view.data == nullptr || view.dtype == dtype) return;
    if (view.dtype != DType::f32 || !is_half(dtype)) return;  // the kernel refuses it by name
    memory_.emplace(memory, static_cast<std::size_t>(view.numel()) * size_of(dtype));
    used_ = {memory_->data(), dtype, view.shape,
             view.rank() == 4 ? channels_last_strides(view.shape) : contiguous_strides(view.shape)};
    if (is_input) kernels.copy(view, used_);
  }
  const View& view() const noexcept { return used_; }
  void finish() {
    if (memory_) kernels_.copy(used_, given_);
  }

 private:
  Kernels& kernels_;
  View given_, used_;
  std::optional<Scratch> memory_;
};

}  // namespace dtrain::cuda
