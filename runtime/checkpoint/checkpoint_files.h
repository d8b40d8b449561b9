// The files inside one checkpoint directory. Internal to runtime/checkpoint: CheckpointStore puts the
// directory in place.
#pragma once

#include <filesystem>

#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {

/// Phase 1 of a save: writes this process' shard to the existing `directory` and fsyncs the files and the
/// directory. What an earlier attempt of this shard left is replaced. Throws as CheckpointStore::prepare.
void write_shard_files(const std::filesystem::path& directory, const Snapshot& snapshot, const Shard& shard);

/// Removes what write_shard_files wrote, as far as that is possible.
void remove_shard_files(const std::filesystem::path& directory, const Shard& shard) noexcept;

/// Phase 2: makes a checkpoint of the files that `shards` processes wrote to `directory`: gives them their
/// names, writes indexes and state.json, and fsyncs it all. Throws as CheckpointStore::commit.
void write_commit_files(const std::filesystem::path& directory, const TrainingState& state, int shards);

/// An entry of TrainingState::schedule: the step of the run's best checkpoint so far, this one's own or an
/// earlier one's. CheckpointStore keeps that one, and has a link `best` lead to it.
inline constexpr const char* kBestStep = "best-step";

/// "step-00000040"
std::string checkpoint_name(std::int64_t step);

/// The step of a name that checkpoint_name made; -1 for any other.
std::int64_t step_of_name(const std::string& name);

/// Whether something, be it a dangling link, has that name.
bool name_taken(const std::filesystem::path& path);

/// Which start of the run wrote a checkpoint; 0: one that did not say.
std::int64_t start_of(const TrainingState& state);

}  // namespace dtrain
