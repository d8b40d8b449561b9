// What the options of a training program say, each in its own type: the fields of train_flags.def.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/factory.h"
#include "parallel/schedule/stage_actions.h"
#include "parallel/schedule/stage_choice.h"
#include "parallel/server/server_rules.h"
#include "parallel/sync/hooks/compress.h"
#include "parallel/sync/sharded/shard_exchange.h"
#include "runtime/autograd/autocast.h"
#include "runtime/base/options.h"
#include "runtime/data/bad_samples.h"
#include "runtime/data/images/transform.h"
#include "runtime/optim/lr_schedule.h"

namespace dtrain {

/// Whether steps are recorded and replayed as graphs of the device: where that works, always (an error where
/// it does not), never.
enum class GraphUse { automatic, on, off };

/// --resume: where a run resumes from.
struct ResumeFrom {
  enum class Kind {
    newest,   ///< its own last good checkpoint, the start where there is none
    nothing,  ///< the start; an error where it has checkpoints
    path,     ///< its own last good checkpoint, else this run or checkpoint folder
  };
  Kind kind = Kind::newest;
  std::string path;
};

struct TrainFlags {
#define DTRAIN_FLAG(type, field, ...) type field{};
#include "training/options/train_flags.def"
};

/// The options that every program has which trains a task.
std::span<const OptionSpec> train_options();

/// Sets the fields as checked `options` say.
void read_train_flags(const Options& options, TrainFlags& flags);

}  // namespace dtrain
