#include "models/benchmark/peak.h"

#include <algorithm>

#include "models/benchmark/samples.h"
#include "runtime/autograd/autocast.h"
#include "runtime/device/kernel_flops.h"

namespace dtrain {
namespace {

constexpr int kRuns = 7;
// Operands of a few MiB: large beside the cost of a call, and done in well under a second on one core.
constexpr std::int64_t kSideOnCpu = 1024, kSideOnGpu = 8192;

}  // namespace

double measure_peak_flops(Communicator& communicator, const std::shared_ptr<Device>& device,
                          std::string_view precision, Duration timeout) {
  const std::int64_t side = device->type() == DeviceType::cpu ? kSideOnCpu : kSideOnGpu;
  const DType dtype = parse_precision(precision) == Precision::bf16 ? DType::bf16 : DType::f32;
  const Tensor a = Tensor::full({1, side, side}, 0.5, device, dtype), b = a.clone(), out = a.clone();
  const auto multiply = [&] {
    device->kernels().matmul(a.view(), b.view(), {}, Activation::none, false, out.view());
  };
  multiply();  // makes its plan
  communicator.barrier("peak")->wait(Deadline::after(timeout));
  double seconds = 1e30;
  for (int run = 0; run < kRuns; ++run) seconds = std::min(seconds, seconds_of(*device, multiply));
  return matmul_flops(a.view(), out.view()) / seconds;
}

}  // namespace dtrain
