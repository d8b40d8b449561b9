// How cuDNN's work gets onto a stream, and what is noted of it.
#pragma once

#include <cudnn.h>

#include <functional>

#include "emulation/include/emulated_work.h"
#include "emulation/math/convolution.h"

namespace emulation {

std::uint64_t bytes_of(const Image& image);
/// What a convolution's products are done in.
Arithmetic arithmetic_of(const Convolution& convolution);
/// Queues `work` on the handle's stream, or records it there; `noted` is added to the log when it runs.
cudnnStatus_t queue(cudnnHandle_t handle, Work noted, std::function<void()> work);

}  // namespace emulation
