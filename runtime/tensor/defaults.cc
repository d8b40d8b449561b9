#include "runtime/tensor/defaults.h"

#include <utility>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::uint64_t kSeedOfPyTorch = 67280421310721;

/// Null: the CPU.
thread_local std::shared_ptr<Device> chosen;  // NOLINT: what DefaultDevice sets

}  // namespace

const std::shared_ptr<Device>& default_device() {
  static const std::shared_ptr<Device> kCpu = make_device("cpu");
  return chosen == nullptr ? kCpu : chosen;
}

DefaultDevice::DefaultDevice(std::shared_ptr<Device> device) {
  if (device == nullptr) throw UsageError("DefaultDevice: expected a device, got null");
  before_ = std::exchange(chosen, std::move(device));
}

DefaultDevice::~DefaultDevice() { chosen = std::move(before_); }

Generator& default_generator() {
  thread_local Generator generator(kSeedOfPyTorch);
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator() = Generator(seed); }

}  // namespace dtrain
