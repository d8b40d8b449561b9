// The GPUs of this machine, as scripts ask for them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device/device.h"

namespace dtrain {

/// How many GPUs this process can use: torch.cuda.device_count(). 0 where there is none, or no CUDA module.
int device_count();

/// GPU `index`, or the CPU where there are not so many, as in lessons.
std::shared_ptr<Device> try_gpu(int index = 0);

/// All GPUs, or the CPU alone where there is none; at least one device.
///
///     const auto devices = try_all_gpus();
///     for (std::size_t i = 0; i < devices.size(); ++i) shards[i] = shards[i].to(devices[i]);
std::vector<std::shared_ptr<Device>> try_all_gpus();

}  // namespace dtrain
