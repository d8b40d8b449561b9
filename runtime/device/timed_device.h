// A device that records a span for every kernel it runs. Nothing is timed, and nothing slowed, on a device
// that was not wrapped: operators call kernels through the device they were given.
#pragma once

#include <memory>

#include "runtime/base/spans.h"
#include "runtime/device/device.h"

namespace dtrain {

/// `device` with its kernels timed into `spans`, which must outlive the result. Spans are named after the
/// kernel ("conv2d_backward_weight"); their category is its kind: "conv", "matmul", "norm", "pool",
/// "elementwise", "reduce", "loss" or "optimizer". Memory of one is memory of the other.
///
/// On a GPU the host waits for each kernel, before it and after it: the times are the kernels', their sum is
/// more than the step takes. This is also where a pair of events would go that does not wait.
std::shared_ptr<Device> make_timed_device(std::shared_ptr<Device> device, SpanRecorder& spans);

}  // namespace dtrain
