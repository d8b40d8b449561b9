// What to train and how: the options of `dtrain train`, resolved and checked, as one value.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/factory.h"
#include "parallel/data/compress/compress.h"
#include "parallel/data/sharded/shard_exchange.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage_choice.h"
#include "parallel/placed/device_map.h"
#include "parallel/server/server_rules.h"
#include "runtime/autograd/autocast.h"
#include "runtime/base/options.h"
#include "runtime/optim/lr_schedule.h"
#include "training/options/optimizer_config.h"

namespace dtrain {

enum class ScaleLr { none, linear, sqrt };

/// How many samples make a step. A rank runs `accumulate` forward and backward passes of `per_worker` samples
/// a step; some ranks run one sample less where the workers do not divide the global batch.
struct BatchPlan {
  std::int64_t per_worker = 0;    ///< samples of one pass on one worker, at most
  std::int64_t accumulate = 1;    ///< passes a step
  std::int64_t global = 0;        ///< samples of one optimizer step over all workers
  bool grows_with_world = false;  ///< --batch-size: `per_worker` is what is fixed, not `global`
};

/// Whether steps are recorded and replayed as graphs of the device: where that works, always (an error where
/// it does not), never.
enum class GraphUse { automatic, on, off };

/// --trace: which steps are to be drawn, and where.
struct TraceRequest {
  std::optional<std::string> file;                    ///< unset: in the run's folder
  std::optional<std::int64_t> first_step, last_step;  ///< of the run, from 1, both included; unset: a few
                                                      ///< after the first of this start
};

/// --resume: where a run goes on from.
struct ResumeFrom {
  enum class Kind {
    newest,   ///< its own last good checkpoint, the start where there is none
    nothing,  ///< the start; an error where it has checkpoints
    path,     ///< its own last good checkpoint, else this run or checkpoint folder
  };
  Kind kind = Kind::newest;
  std::string path;
};

/// TrainConfig::shard_group: the workers of a node.
inline constexpr int kShardNode = -1;

struct TrainConfig {
  std::string model;  ///< what is learned: the task's name
  std::map<std::string, std::string>
      own;  ///< the program's own options: a checkpoint is resumed only with the same
  std::string dataset, data_dir;
  std::vector<std::string> freeze;   ///< patterns of the names of parameters that do not learn
  std::string init_from;             ///< weights to start from instead of drawn ones; empty: none
  std::string device;                ///< a name as make_device takes it
  std::vector<std::string> devices;  ///< of a worker that computes on several; empty: on `device`
  bool update_on_host = false;       ///< where parameters of several devices live: not on the first of them
  bool placed = false;               ///< parts of the network are on different ones of `devices`
  std::vector<Place> places;         ///< where; empty: where a proposal puts them
  int device_stages = 0;             ///< of a pipeline over `devices`, one each; 0: none
  bool autotune = true;              ///< DeviceOptions::autotune
  Precision precision = Precision::fp32;
  Backend backend = Backend::automatic;
  std::int64_t epochs = 0;                ///< INT64_MAX when only max_steps limits the run
  std::optional<std::int64_t> max_steps;  ///< optimizer steps of the whole run, resumed parts included
  /// Parts that a batch is always cut into, each a pass of its own, so that the numbers do not depend on how
  /// many workers there are; 0: cut by workers.
  std::int64_t virtual_workers = 0;
  std::int64_t sync_every = 0;  ///< steps between averages of parameters; 0: gradients are shared
  int thread_workers = 1;       ///< workers of this process, each a thread; 1: it is one itself
  int threads = 0;              ///< of the math library; 0: as the environment says
  bool sync_batch_norm = false;
  Compression compress;             ///< of gradients between workers
  std::optional<ShardStage> shard;  ///< unset: data parallel, every rank keeps everything
  int shard_group = 0;              ///< workers that have a part each; 0: all; see kShardNode
  std::vector<MeshAxis> mesh;       ///< axes dp, pp, tp, their product the workers; empty: dp alone
  bool sequence_parallel = false;   ///< activations between divided layers are cut along the sequence
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;  ///< of a mesh with pp
  int chunks = 1;   ///< of the network in each stage; more than 1 where interleaved
  StageCut stages;  ///< where the network is cut into stages, or their chunks
  int servers = 0;  ///< processes beside the workers that keep and update the parameters; 0: workers do
  ServerUpdate update = ServerUpdate::sync;   ///< of servers
  std::optional<std::int64_t> max_staleness;  ///< ServerRules::max_staleness
  bool recompute = false;
  bool drop_last = false;  ///< StepSamplerOptions::drop_last
  BatchPlan batch;
  OptimizerConfig optimizer;
  LrKind lr_kind = LrKind::constant;
  std::int64_t warmup_steps = 0, lr_decay_every = 0;
  double lr_gamma = 0.1, min_lr = 0;
  std::uint64_t seed = 0;
  int loader_threads = 0;
  GraphUse graphs = GraphUse::automatic;
  std::optional<std::string> run_dir;
  ResumeFrom resume;
  std::int64_t log_every = 1, eval_every = 1;
  std::optional<std::int64_t> checkpoint_every;  ///< optimizer steps; 0: at the end only; unset: every epoch
  int keep_checkpoints = 3;
  bool checkpoint_at_start = false;
  std::int64_t peer_snapshots = 0;  ///< steps between copies of the state in each node's memory; 0: none
  std::int64_t check_replicas = 0;  ///< steps between comparisons of what ranks hold alike; 0: never
  double loss_spike = 0;            ///< times the median loss; 0: no loss is one
  bool log_samples = false;
  bool profile = false;
  std::optional<TraceRequest> trace;
  std::chrono::nanoseconds collective_timeout{}, connect_timeout{};
};

/// The options that every program has which trains a task.
std::span<const OptionSpec> train_options();

/// Checks every value and combines them for a job of `world_size` workers that learns `model`. Throws
/// UsageError naming the option.
TrainConfig make_train_config(const Options& options, std::string_view model, std::int64_t world_size);

/// The schedule of a run with `steps_per_epoch` optimizer steps an epoch.
LrSchedule make_schedule(const TrainConfig& recipe, std::int64_t steps_per_epoch);

/// The settings that decide the numbers of a run, as name → value: a checkpoint is resumed only where they
/// agree.
std::map<std::string, std::string> identity(const TrainConfig& recipe);

}  // namespace dtrain
