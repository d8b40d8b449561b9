// The CPU as a Device: kernels run in the calling thread, streams are always idle, events always done.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace dtrain::cpu {

/// Cheap: allocates nothing big and generates no code until the first kernel runs. `index` is what "cpu:N"
/// asked for; negative for plain "cpu", which is device 0.
std::shared_ptr<Device> make_cpu_device(int index = -1);

}  // namespace dtrain::cpu
