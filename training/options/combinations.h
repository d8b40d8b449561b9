// Which options do not go together, and which need another: one table, from which --help, the documentation
// and the refusals are made.
#pragma once

#include <string>

#include "training/options/train_config.h"

namespace dtrain {

/// Throws UsageError for the first row of the table that what was asked for breaks: the option, what it may
/// be and why. `config` has its flags, shard group, mesh and devices.
void check_combinations(const Options& options, const TrainConfig& config);

/// For the end of a help text: a line for each option that does not go with others.
std::string combinations_help();

/// The table as Markdown, for the documentation.
std::string combinations_markdown();

}  // namespace dtrain
