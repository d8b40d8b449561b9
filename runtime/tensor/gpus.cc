#include "runtime/tensor/gpus.h"

#include <string>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dtrain {

int device_count() { return cuda::device_count(); }

std::shared_ptr<Device> try_gpu(int index) {
  if (index < 0) throw UsageError("try_gpu: expected a number from 0 on, got " + std::to_string(index));
  return index < device_count() ? make_device("cuda:" + std::to_string(index)) : make_device("cpu");
}

std::vector<std::shared_ptr<Device>> try_all_gpus() {
  std::vector<std::shared_ptr<Device>> devices;
  for (int i = 0; i < device_count(); ++i) devices.push_back(try_gpu(i));
  if (devices.empty()) devices.push_back(make_device("cpu"));
  return devices;
}

}  // namespace dtrain
