// Everything before the first step: data, weights, resuming, and what rank 0 writes to.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "models/vision/image_input.h"
#include "models/vision/resnet.h"
#include "parallel/data/batch_peers.h"
#include "parallel/share.h"
#include "runtime/base/error.h"
#include "runtime/data/sources/open_source.h"
#include "training/run/saved_tensors.h"
#include "training/trainer.h"

namespace dtrain {
namespace {

constexpr const char* kPositionUnit = "position-unit";

const std::string kScalerPrefix = "scaler.";

/// What snapshot() put among a checkpoint's entries for the scaler.
std::map<std::string, std::string> scaler_entries(const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> entries;
  for (const auto& [name, value] : extra) {
    if (name.starts_with(kScalerPrefix)) entries.emplace(name.substr(kScalerPrefix.size()), value);
  }
  return entries;
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, const TrainerEnvironment& environment)
    : recipe_(recipe),
      env_(environment),
      graph_(make_step_graph(recipe.cuda_graph, recipe.sync_batch_norm, environment.device)),
      started_(steady_clock().now()) {
  open_data();
  Generator generator(recipe_.seed);
  network_ = make_network(recipe_.model, image_input(*train_data_), generator, env_.device);
  generator_state_ = generator.state();
  apply_layer_options();
  optimizer_ = make_optimizer(recipe_, *network_);
  if (parse_precision(recipe_.precision) == Precision::fp16) {
    scaler_ = std::make_unique<GradScaler>(env_.device);
    scaler_->attach(*optimizer_);
  }
  resume();
  start_trace();
  count_steps();
  // Rank 0's weights are everybody's from here on; gradients live in its buckets.
  parallel_ = std::make_unique<DataParallel>(env_.communicator, *network_, start_deadline());
  feed_ = std::make_unique<BatchFeed>(env_.device);
  reports_ =
      std::make_unique<StepReports>(env_.communicator, env_.device, env_.device->type() != DeviceType::cpu);
}

void Trainer::apply_layer_options() {
  if (recipe_.recompute && recompute_blocks(*network_) == 0) {
    throw UsageError(
        fmt::format("--recompute: expected a model with residual blocks (resnet18, resnet50), got {}, "
                    "which has none; leave the option out",
                    recipe_.model));
  }
  if (!recipe_.sync_batch_norm) return;
  // A world of one has its whole batch.
  const auto peers = env_.communicator.size() == 1
                         ? nullptr
                         : make_batch_peers(env_.communicator, recipe_.collective_timeout);
  if (synchronize_batch_norms(*network_, peers) > 0) return;
  throw UsageError(
      fmt::format("--sync-batch-norm: expected a model with batch norm (resnet18, resnet50), got {}, "
                  "which has none; leave the option out",
                  recipe_.model));
}

void Trainer::open_data() {
  const OpenSourceOptions options{.data_dir = recipe_.data_dir, .cache_dir = "auto", .log = &env_.log};
  train_data_ = open_source(recipe_.dataset, Split::train, options);
  test_data_ = open_source(recipe_.dataset, Split::test, options);
  sampler_ = std::make_unique<StepSampler>(StepSamplerOptions{.dataset_size = train_data_->size(),
                                                              .world_size = env_.communicator.size(),
                                                              .rank = env_.communicator.rank(),
                                                              .global_batch = recipe_.batch.global,
                                                              .seed = recipe_.seed});
  loader_ =
      std::make_unique<Loader>(train_data_, env_.device,
                               LoaderOptions{.batch_size = sampler_->full_share() / recipe_.batch.accumulate,
                                             .threads = recipe_.loader_threads,
                                             .seed = recipe_.seed,
                                             .spans = env_.tracer.spans()});
  schedule_ = make_schedule(recipe_, sampler_->steps_from(0));
}

// From where the run is: steps that are done may have been larger or smaller, with another number of workers.
void Trainer::count_steps() {
  total_steps_ = recipe_.max_steps.value_or(INT64_MAX);
  if (recipe_.epochs == INT64_MAX) return;
  const std::int64_t whole = std::max<std::int64_t>(recipe_.epochs - epoch_ - 1, 0) * sampler_->steps_from(0);
  const std::int64_t left = epoch_ < recipe_.epochs ? whole + sampler_->steps_from(position_) : 0;
  total_steps_ = std::min(total_steps_, step_ + left);
}

// Rank 0 picks the checkpoint and hands everything to the others, who need not see its disk.
void Trainer::resume() {
  std::optional<Checkpoint> checkpoint;
  std::string state_text;
  NamedTensors optimizer_state;
  if (is_root()) {
    run_dir_ = choose_run_dir(recipe_, env_.environment).string();
    auto locked = lock_run(recipe_, RunDirectory(run_dir_), env_.log);  // before looking inside
    checkpoint = find_checkpoint(recipe_, RunDirectory(run_dir_), env_.log);
    if (checkpoint) {
      state_text = format_training_state(checkpoint->state, {});
      network_->load_state_dict(load_tensors(checkpoint->model, env_.device));
      optimizer_state = load_tensors(checkpoint->optimizer, env_.device);
    }
    start_recorder(std::move(locked), checkpoint);
  }
  open_log();
  state_text = broadcast_text(env_.communicator, state_text, start_deadline());
  if (state_text.empty()) return;
  CheckpointSeals ignored;
  const TrainingState state = parse_training_state(state_text, "state from rank 0", ignored);
  optimizer_->load_state(
      broadcast_tensors(env_.communicator, optimizer_state, env_.device, start_deadline()));
  if (scaler_) scaler_->load_state(scaler_entries(state.extra));
  step_ = resumed_from_ = state.step;
  epoch_ = state.epoch;
  position_ = state.position_in_epoch;
  // Checkpoints of before 0.2 counted steps here.
  if (!state.extra.contains(kPositionUnit)) position_ *= recipe_.batch.global;
  position_ = std::min(position_, train_data_->size());
  saved_step_ = state.step;
}

// Every rank keeps a log of its own where it can see rank 0's run directory.
void Trainer::open_log() {
  run_dir_ = broadcast_text(env_.communicator, run_dir_, start_deadline());
  if (recipe_.log_samples) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    start_id_ = broadcast_text(env_.communicator, std::to_string(now), start_deadline());
  }
  const auto folder = RunDirectory(run_dir_).logs();
  if (!std::filesystem::is_directory(folder)) return;
  const int rank = env_.communicator.rank();
  env_.log.attach(folder / fmt::format("rank-{}.log", rank));
  if (recipe_.log_samples) samples_log_.open(folder / fmt::format("samples-{}.jsonl", rank), std::ios::app);
  env_.log.note(LogLevel::info,
                fmt::format("rank {} of {}, pid {}, {}, backend {}", rank, env_.communicator.size(),
                            ::getpid(), env_.device->name(), env_.communicator.backend()));
}

// All ranks' times are told from rank 0's this moment, as far as the machines' clocks agree.
void Trainer::start_trace() {
  if (!env_.tracer.wanted()) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::string zero = broadcast_text(env_.communicator, std::to_string(now.count()), start_deadline());
  env_.tracer.begin_run(run_dir_, step_, parse_integer(zero).value_or(0));
}

void Trainer::start_recorder(std::unique_ptr<CheckpointStore> locked,
                             const std::optional<Checkpoint>& checkpoint) {
  // State that appears with the first step is as large as the parameters: one copy for momentum, two for
  // AdamW.
  const std::uint64_t copies = recipe_.optimizer == "adamw" ? 3 : recipe_.sgd.momentum > 0 ? 2 : 1;
  const std::uint64_t bytes = checkpoint_bytes(snapshot().snapshot) * copies;
  const RunDirectory run = RunDirectory::create(run_dir_, bytes);
  const std::int64_t step = checkpoint ? checkpoint->state.step : 0;
  recorder_ = std::make_unique<RunRecorder>(run, std::move(locked), env_.options, env_.environment, recipe_,
                                            checkpoint, bytes, env_.log, env_.tracer.spans());
  if (checkpoint) {
    recorder_->message(fmt::format("going on after step {} from {}", step, checkpoint->path.string()));
  }
}

Trainer::OwnedSnapshot Trainer::snapshot() const {
  OwnedSnapshot owned{on_host(network_->state_dict()), on_host(optimizer_->named_state()), {}};
  TrainingState& state = owned.snapshot.state;
  state.step = step_;
  state.epoch = epoch_;
  state.position_in_epoch = position_;
  state.generators["weights"] = generator_state_;
  state.extra = identity(recipe_);
  if (scaler_) {
    for (const auto& [name, value] : scaler_->state()) state.extra[kScalerPrefix + name] = value;
  }
  state.extra.emplace(kPositionUnit, "samples");
  owned.snapshot.model = views_of(owned.model);
  owned.snapshot.optimizer = views_of(owned.optimizer);
  return owned;
}

}  // namespace dtrain
