// Weights on disk: a run's newest good checkpoint, one checkpoint, or a single safetensors file.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/nn/module.h"
#include "training/use/weight_mismatch.h"

namespace dtrain {

/// Tensors by a network's names, and what is known of the run they came from.
struct SavedWeights {
  std::filesystem::path path;  ///< the checkpoint, or the file
  TensorFiles tensors;
  std::map<std::string, std::string>
      identity;  ///< settings of the run (training/options/train_config.h); of a file none
  std::optional<TensorFiles> averages = {};       ///< "<tensor>.ema" of some, to be used instead (--ema)
  std::map<std::string, std::string> names = {};  ///< a network's name → its name here; empty: the same

  /// What the network's tensor `name` is called here.
  const std::string& name_here(const std::string& name) const {
    const auto found = names.find(name);
    return found == names.end() ? name : found->second;
  }
  /// TensorFiles::read of the tensor that is called `name` here, or of its average where there is one.
  void read(const std::string& name, const View& target) const;
  void read(const std::string& name, const TensorShard& part, const View& target) const;
};

/// Opens `path`: a run directory, a checkpoint directory or a .safetensors file. Of a run or checkpoint with
/// averaged weights these are used, of a file what is in it. Throws UsageError, its
/// message beginning with `option`, when there is nothing, DataError when no checkpoint there is good.
SavedWeights open_weights(const std::filesystem::path& path, std::string_view option, Log& log);

/// Copies `weights` into `network`, or into a rank's slices of it. Every tensor of the network must be there
/// under its name with its shape, and nothing else; floating dtypes are converted into each other, others
/// must agree. A name that shares its memory with another one (tied weights) may be missing. Throws DataError
/// that names the file, missing and unexpected tensors, and of one that does not fit what was expected and
/// found; nothing is changed then. `network_name` is for the message. With MissingWeights::kept tensors that
/// are missing, or there in another shape, stay as they are, and others may be there: what is returned; some
/// must fit.
LeftOut load_weights(Module& network, const SavedWeights& weights, std::string_view network_name,
                     MissingWeights missing = MissingWeights::refused);

}  // namespace dtrain
