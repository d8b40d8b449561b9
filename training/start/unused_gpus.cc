#include "training/start/unused_gpus.h"

#include <fmt/format.h>

#include "cluster/detect/gpus.h"
#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dtrain {
namespace {

// Of module, driver or devices: what is missing.
std::string what_is_missing() {
  try {
    return cuda::describe();
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

std::string why_no_gpu(const Device& used, const Environment& environment) {
  if (used.type() != DeviceType::cpu) return "";
  const auto variable = environment.find("CUDA_VISIBLE_DEVICES");
  const bool named = variable != environment.end();
  const auto shown = visible_gpus(named ? std::optional(variable->second) : std::nullopt, installed_gpus());
  if (shown.empty()) return "";
  return fmt::format("device cpu, though {}: {}; --device cpu confirms that the CPU is meant",
                     named ? fmt::format("CUDA_VISIBLE_DEVICES={} names GPUs", variable->second)
                           : fmt::format("this machine has {} GPUs", shown.size()),
                     what_is_missing());
}

}  // namespace dtrain
