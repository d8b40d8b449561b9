// Where a run stands, besides its tensors: state.json of a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/checkpoint/safetensors.h"

namespace dtrain {

/// Everything needed to resume exactly. Strings are UTF-8.
struct TrainingState {
  std::int64_t step = 0;               ///< finished optimizer steps
  std::int64_t epoch = 0;              ///< epoch of the next step, from 0
  std::int64_t position_in_epoch = 0;  ///< samples already taken from that epoch, by all ranks together
  std::map<std::string, std::string> generators;  ///< by name: Generator::state()
  std::map<std::string, double> schedule;         ///< the schedule's own numbers; finite
  std::map<std::string, std::string> extra;  ///< whatever else must come back (scaler, best accuracy, …)
  std::string config_hash;                   ///< of the resolved configuration; compare before resuming
  std::string program_version;

  bool operator==(const TrainingState&) const = default;
};

/// What state.json knows of the other files of its checkpoint, by file name, so that files of two checkpoints
/// never mix.
using CheckpointSeals = std::map<std::string, SafetensorsSeal>;

/// The text of state.json, its own CRC-32 included. Throws UsageError for negative counts, numbers that are
/// not finite and text that is not UTF-8.
std::string format_training_state(const TrainingState& state, const CheckpointSeals& seals);

/// Reads what format_training_state wrote; `path` is for messages. Throws DataError for anything else.
TrainingState parse_training_state(const std::string& text, const std::filesystem::path& path,
                                   CheckpointSeals& seals);

}  // namespace dtrain
