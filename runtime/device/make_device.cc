// From a device's name to the device.
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/device.h"

namespace dtrain {
namespace {

constexpr std::string_view kCpuPrefix = "cpu:", kCudaPrefix = "cuda:";

[[noreturn]] void throw_unknown(std::string_view name) {
  throw UsageError("device: expected cpu, cpu:N, cuda, cuda:N or auto, got '" + std::string(name) + "'");
}

int index_in(std::string_view name, std::string_view prefix) {
  const std::string_view digits = name.substr(prefix.size());
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc{} || end != digits.data() + digits.size() || index < 0) throw_unknown(name);
  return index;
}

}  // namespace

std::shared_ptr<Device> make_device(std::string_view name, const DeviceOptions& options) {
  if (name == "cpu") return cpu::make_cpu_device();
  if (name == "auto" && cuda::device_count() == 0) {
    if (cuda::emulation_asked_for())
      cuda::describe();  // throws: a user who asks for it does not mean the CPU
    return cpu::make_cpu_device();
  }
  if (name == "auto" || name == "cuda") return cuda::make_cuda_device(cuda::kOwnDevice, options);
  if (name.starts_with(kCpuPrefix)) return cpu::make_cpu_device(index_in(name, kCpuPrefix));
  if (name.starts_with(kCudaPrefix)) return cuda::make_cuda_device(index_in(name, kCudaPrefix), options);
  throw_unknown(name);
}

}  // namespace dtrain
