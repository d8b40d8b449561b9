// What to train and how: the options of `dtrain train`, resolved and checked, as one value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/placed/device_map.h"
#include "runtime/base/options.h"
#include "runtime/optim/lr_schedule.h"
#include "training/options/optimizer_config.h"
#include "training/options/train_flags.h"
#include "training/options/weight_init.h"

namespace dtrain {

inline constexpr std::int64_t kGlobalBatch = 256;  ///< samples of a step where no option says

/// How many samples make a step. A rank runs `accumulate` forward and backward passes of `per_worker` samples
/// a step; some ranks run one sample less where the workers do not divide the global batch.
struct BatchPlan {
  std::int64_t per_worker = 0;    ///< samples of one pass on one worker, at most
  std::int64_t accumulate = 1;    ///< passes a step
  std::int64_t global = 0;        ///< samples of one optimizer step over all workers
  bool grows_with_world = false;  ///< --batch-size: `per_worker` is what is fixed, not `global`
};

/// --trace: which steps are to be drawn, and where.
struct TraceRequest {
  std::optional<std::string> file;                    ///< unset: in the run's folder
  std::optional<std::int64_t> first_step, last_step;  ///< of the run, from 1, both included; unset: a few
                                                      ///< after the first of this start
};

/// TrainConfig::shard_group: the workers of a node.
inline constexpr int kShardNode = -1;

/// What of a task's own makes a step more than a network, a loss and an optimizer (training/phase.h).
struct TaskTraits {
  std::size_t phases = 0;
  bool has_groups = false, has_optimizer = false, has_after_update = false, has_step_loss = false,
       has_group_loss = false;
};

/// The flags, and what follows from them for one job.
struct TrainConfig : TrainFlags {
  std::string model;                            ///< what is learned: the task's name
  std::map<std::string, std::string> settings;  ///< options with Agreement::identity, and the program's own
  std::int64_t epochs = 0;                      ///< INT64_MAX when only max_steps limits the run
  std::string use;                   ///< what the end of a run proposes, with RUN in it; empty: nothing
  WeightInit init;                   ///< of the weights; empty: each layer's own
  std::vector<std::string> freeze;   ///< patterns of the names of frozen parameters
  std::vector<std::string> devices;  ///< of a worker that computes on several; empty: on `device`
  bool update_on_host = false;       ///< where parameters of several devices live: not on the first of them
  bool placed = false;               ///< parts of the network are on different ones of `devices`
  std::vector<Place> places;         ///< where; empty: where a proposal puts them
  int device_stages = 0;             ///< of a pipeline over `devices`, one each; 0: none
  bool autotune = true;              ///< DeviceOptions::autotune
  int shard_group = 0;               ///< workers that have a part each; 0: all; see kShardNode
  std::vector<MeshAxis> mesh;        ///< axes dp, pp, tp, their product the workers; empty: dp alone
  TaskTraits task;
  BatchPlan batch;
  OptimizerConfig optimizer;
  std::optional<TraceRequest> trace;
};

/// Checks every value and combines them for a job of `world_size` workers that learns `model`, whose task has
/// `traits`. Throws UsageError naming the option.
TrainConfig make_train_config(const Options& options, std::string_view model, std::int64_t world_size,
                              const TaskTraits& traits = {});

/// The schedule of a run with `steps_per_epoch` optimizer steps an epoch.
LrSchedule make_schedule(const TrainConfig& config, std::int64_t steps_per_epoch);

/// The settings that decide the numbers of a run, as name → value: a checkpoint is resumed only where they
/// agree.
std::map<std::string, std::string> identity(const TrainConfig& config);

}  // namespace dtrain
