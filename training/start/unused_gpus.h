// Users who name GPUs are told when none computes.
#pragma once

#include <string>

#include "runtime/base/environment.h"
#include "runtime/device/device.h"

namespace dtrain {

/// Why `used`, which --device auto has chosen, is the CPU though CUDA_VISIBLE_DEVICES or the NVIDIA driver's
/// files show GPUs: one line for people. Empty where it is a GPU, and where nothing shows one.
std::string why_no_gpu(const Device& used, const Environment& environment);

}  // namespace dtrain
