// Where tensors are made, and what random numbers come from, when the program does not say: for a program's
// outermost code and for trying things out. The library itself is always told.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/random.h"
#include "runtime/device/device.h"

namespace dtrain {

/// The device of the innermost DefaultDevice of this thread; without one the CPU, the same for the whole
/// process: tensors go together only if they are of one device.
const std::shared_ptr<Device>& default_device();

/// Makes `device` this thread's default as long as it lives; nests.
///
///     const DefaultDevice gpu(make_device("cuda:1"));
///     Tensor x = ones({2, 4});  // on cuda:1
class DefaultDevice {
 public:
  /// Throws UsageError for null.
  explicit DefaultDevice(std::shared_ptr<Device> device);
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  std::shared_ptr<Device> before_;
};

/// This thread's generator, which rand() and randn() draw from when they are given none. Before a seed is
/// set, PyTorch's default seed.
Generator& default_generator();

/// Starts this thread's generator anew, as torch.manual_seed(seed).
void manual_seed(std::uint64_t seed);

}  // namespace dtrain
