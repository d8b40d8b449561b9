// What a run decided by itself, which no option said (where a network is cut, say): in its config.json, so
// that a later start of the run decides the same.
#pragma once

#include <map>
#include <string>

#include "runtime/metrics/run_directory.h"
#include "training/options/train_config.h"

namespace dtrain {

using TunedConfig = std::map<std::string, std::string>;  ///< option → value, as StrategyReport::tuned_config

/// What the starts of `run` before this one chose; where it has no config.json, those of the run that
/// --resume names. Nothing where there is none, where it cannot be read, and with --resume never. Rank 0
/// only.
TunedConfig read_tuned_config(const TrainConfig& config, const RunDirectory& run);

/// As one text, to be handed to other ranks, and back.
std::string format_tuned_config(const TunedConfig& tuned);
TunedConfig parse_tuned_config(const std::string& text);

}  // namespace dtrain
