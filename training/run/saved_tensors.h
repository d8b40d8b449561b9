// Between checkpoints, which look at host memory, and tensors, which may live on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "parallel/strategy.h"
#include "runtime/checkpoint/tensor_files.h"

namespace dtrain {

/// All tensors of `files` on `device`, read one by one; a device other than the CPU needs one of them on the
/// host.
NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device);

/// `parts` where the host can read them: its own tensors themselves, of a device that runs ahead copies
/// (waits for it).
StateParts on_host(StateParts parts);

/// Borrowed views of tensors that on_host() gave, for a snapshot.
std::vector<NamedView> views_of(const NamedTensors& tensors);

}  // namespace dtrain
