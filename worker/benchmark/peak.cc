#include "worker/benchmark/peak.h"

#include <algorithm>

#include "runtime/autograd/autocast.h"
#include "runtime/device/kernel_flops.h"
#include "worker/benchmark/samples.h"

namespace dtrain {
namespace {

// As many runs as fit the time, but two at least: without a math library one alone takes seconds.
constexpr int kLeastRuns = 2;
constexpr double kSecondsOfRuns = 0.5;
// Operands of a few MiB: large beside the cost of a call, and done in well under a second on one core.
constexpr std::int64_t kSideOnCpu = 1024, kSideOnGpu = 8192;

}  // namespace

double measure_peak_flops(Communicator& communicator, const std::shared_ptr<Device>& device,
                          Precision precision, Duration timeout) {
  const std::int64_t side = device->type() == DeviceType::cpu ? kSideOnCpu : kSideOnGpu;
  const bool halves = precision == Precision::fp16 && device->has_float16();
  const DType dtype = precision == Precision::bf16 ? DType::bf16 : halves ? DType::f16 : DType::f32;
  const Tensor a = Tensor::full({1, side, side}, 0.5, device, dtype), b = a.clone(), out = a.clone();
  const auto multiply = [&] {
    device->kernels().matmul(a.view(), b.view(), {}, Activation::none, false, out.view());
  };
  multiply();  // makes its plan
  communicator.barrier("peak")->wait(Deadline::after(timeout));
  double best = seconds_of(*device, multiply), total = best;
  for (int run = 1; run < kLeastRuns || total < kSecondsOfRuns; ++run) {
    const double seconds = seconds_of(*device, multiply);
    best = std::min(best, seconds);
    total += seconds;
  }
  return matmul_flops(a.view(), out.view()) / best;
}

}  // namespace dtrain
