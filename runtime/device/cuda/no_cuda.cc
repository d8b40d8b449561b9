// Stands in for the CUDA device in builds without CUDA.
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dtrain::cuda {

int device_count() noexcept { return 0; }

std::shared_ptr<Device> make_cuda_device(int index) {
  throw UsageError("device cuda:" + std::to_string(index) +
                   ": this build has no CUDA device; configure with -DDTRAIN_WITH_CUDA=ON (CUDA Toolkit "
                   "needed), or ask for device cpu");
}

}  // namespace dtrain::cuda
