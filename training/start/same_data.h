// Workers whose copies of the data differ would leave samples out and train on what is held out; so would a
// run that resumes with other data than it began with. Both are found before anything is trained.
#pragma once

#include "collectives/communicator.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/training_state.h"
#include "runtime/data/fingerprint.h"

namespace dtrain {

/// Collective over all workers: compares with rank 0's data. Throws UsageError with what differs on a worker
/// whose data do, and PeerError with the same words on the others.
void check_same_data(const DataFingerprint& data, Communicator& workers, const Deadline& deadline);

/// Whether a run may resume from `state`, that of `checkpoint`, with these splits, whose fingerprint is
/// `data`: with the samples it had, or with those and more behind them, which `log` hears of. Throws
/// UsageError for any others. Of a checkpoint that does not say what its data were `log` hears too.
void check_resumed_data(const std::filesystem::path& checkpoint, const TrainingState& state,
                        const Source& train, const Source& test, const DataFingerprint& data, Log& log);

/// Weights of `from`, a run whose identity that is, for a network that is to learn from samples of `fields`:
/// throws UsageError where these are of the same columns or classes in another order, which the weights would
/// mix up. Other columns and classes are the user's choice.
void check_initial_columns(const std::string& from, const std::map<std::string, std::string>& identity,
                           std::span<const Field> fields);

}  // namespace dtrain
