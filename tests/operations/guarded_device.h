// A CPU whose memory is poisoned: what is read before it was written, or beside an array, is NaN; what is
// written beside one is noticed.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "runtime/device/device.h"

namespace dtrain::test {

/// A device of its own, with the CPU's kernels. Fresh memory is all ones, which is NaN in every floating
/// dtype and -1 in the others.
class GuardedDevice : public Device {
 public:
  /// Whether bytes in front of or behind an array were overwritten since the last call. Arrays are looked at
  /// when they are freed.
  virtual bool take_overrun() noexcept = 0;
  /// The kernels that have run, by their names in kernels.def; of unary, binary and parametric ones which:
  /// "unary exp".
  virtual const std::set<std::string>& called() const noexcept = 0;
};

/// `type`: what it says that it is; what is written for GPUs runs on one that says cuda.
std::shared_ptr<GuardedDevice> make_guarded_device(DeviceType type = DeviceType::cpu);

/// All that called() can have.
std::set<std::string> all_kernels();

}  // namespace dtrain::test
