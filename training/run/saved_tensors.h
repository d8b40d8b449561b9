// Between checkpoints, which look at host memory, and tensors, which may live on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "runtime/checkpoint/tensor_files.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// All tensors of `files` on `device`, read one by one; a device other than the CPU needs one of them on the
/// host.
NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device);

/// `tensors` where the host can read them: on the CPU they themselves, of a GPU copies (waits for it).
NamedTensors on_host(NamedTensors tensors);

/// Borrowed views of tensors that on_host() gave, for a snapshot.
std::vector<NamedView> views_of(const NamedTensors& tensors);

}  // namespace dtrain
