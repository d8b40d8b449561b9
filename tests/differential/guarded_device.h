// A CPU whose memory is poisoned: what is read before it was written, or beside an array, is NaN; what is
// written beside one is noticed.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace dtrain::differential {

/// A device of its own, with the CPU's kernels. Fresh memory is all ones, which is NaN in every floating
/// dtype and -1 in the others.
class GuardedDevice : public Device {
 public:
  /// Whether bytes in front of or behind an array were overwritten since the last call. Arrays are looked at
  /// when they are freed.
  virtual bool take_overrun() noexcept = 0;
};

std::shared_ptr<GuardedDevice> make_guarded_device();

}  // namespace dtrain::differential
