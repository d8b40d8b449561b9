// A network and its optimizer to and from files, for programs that write their own loop; train_main() does
// this and more by itself.
//
//     CheckpointStore store("mine/checkpoints", 3, log);
//     TrainingState state;
//     if (const auto newest = store.latest()) { restore(*newest, network, optimizer); state = newest->state;
//     } for (; state.step < steps; …) { …; ++state.step; save_checkpoint(store, state, network, optimizer); }
#pragma once

#include <filesystem>

#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/nn/module.h"
#include "runtime/optim/optimizer.h"

namespace dtrain {

/// Writes the checkpoint of `state.step` and returns its folder once it is durable: at every moment there is
/// this one whole, or the one before. Of several ranks that hold the same, rank 0 calls it. Waits for the
/// device. Throws as CheckpointStore::save(), and Error where a parameter or the optimizer's state is not
/// finite: nothing good follows from such a checkpoint.
std::filesystem::path save_checkpoint(CheckpointStore& store, const TrainingState& state,
                                      const Module& network, const Optimizer& optimizer);

/// Copies a checkpoint's tensors into the network and the optimizer, wherever they are; any rank may call it.
/// Throws UsageError for names and shapes that do not fit, and DataError for values that are damaged.
void restore(const Checkpoint& checkpoint, Module& network, Optimizer& optimizer);

/// Writes parameters and buffers to the safetensors file `path`, under the names that PyTorch's state_dict
/// has; what was there is replaced once the new file is whole and durable. Throws SystemError.
void save_weights(const Module& network, const std::filesystem::path& path);

/// Copies a safetensors file's tensors into `network`. Dtypes are converted. Throws UsageError listing every
/// name that is missing or unexpected, or for a shape that does not fit (nothing is changed then), DataError
/// for a file that is damaged, SystemError for one that cannot be read.
void load_weights(Module& network, const std::filesystem::path& path);

}  // namespace dtrain
