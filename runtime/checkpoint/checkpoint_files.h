// The files inside one checkpoint directory. Internal to runtime/checkpoint: CheckpointStore puts the
// directory in place.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {

/// Fills the existing, empty `directory` with the three files and fsyncs each and the directory. Throws as
/// CheckpointStore::save.
void write_checkpoint_files(const std::filesystem::path& directory, const Snapshot& snapshot);

/// "step-00000040"
std::string checkpoint_name(std::int64_t step);

/// The step of a name that checkpoint_name made; -1 for any other.
std::int64_t step_of_name(const std::string& name);

}  // namespace dtrain
