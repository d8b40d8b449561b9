// Between checkpoints, which look at host memory, and tensors, which may live on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// Copies of all the file's tensors on `device`.
NamedTensors load_tensors(const SafetensorsFile& file, const std::shared_ptr<Device>& device);

/// `tensors` where the host can read them: on the CPU they themselves, of a GPU copies (waits for it).
NamedTensors on_host(NamedTensors tensors);

/// Borrowed views of tensors that on_host() gave, for a snapshot.
std::vector<NamedView> views_of(const NamedTensors& tensors);

}  // namespace dtrain
