// What this machine can do at most, to hold a step's kernels against.
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "training/options/train_config.h"

namespace dtrain {

/// Collective, since the workers of a machine share it: floating-point operations a second of a large square
/// matmul through the device's own kernels, the best of several. In bf16 it multiplies bf16, everything else
/// (fp16, which the CPU emulates, too) float32. Throws PeerError, DeviceError.
double measure_peak_flops(Communicator& communicator, const std::shared_ptr<Device>& device,
                          Precision precision, Duration timeout);

}  // namespace dtrain
