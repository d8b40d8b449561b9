// Everything before the first step: data, weights, resuming, and what rank 0 writes to.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "parallel/layout/saved_tensors.h"
#include "parallel/share.h"
#include "parallel/sync/batch_peers.h"
#include "parallel/sync/equal_start.h"
#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/trainable.h"
#include "training/batch_tensors.h"
#include "training/log/run_records.h"
#include "training/loop/tuned_config.h"
#include "training/loop/run_folder.h"
#include "training/start/same_data.h"
#include "training/start/unused_gpus.h"
#include "training/loop/trainer.h"
#include "training/use/weights.h"

namespace dtrain {
namespace {

constexpr const char* kPositionUnit = "position-unit";

const std::string kScalerPrefix = "scaler.";

bool has_batch_norm(Module& network) {
  bool found = false;
  network.visit([&](Module& module) { found = found || dynamic_cast<BatchNorm2d*>(&module) != nullptr; });
  return found;
}

/// What state() put among a checkpoint's entries for the scaler.
std::map<std::string, std::string> scaler_entries(const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> entries;
  for (const auto& [name, value] : extra) {
    if (name.starts_with(kScalerPrefix)) entries.emplace(name.substr(kScalerPrefix.size()), value);
  }
  return entries;
}

EngineOptions engine_options(const TrainConfig& recipe, const TrainerEnvironment& environment) {
  return {.precision = recipe.precision,
          .graphs = recipe.graphs,
          .patience = recipe.collective_timeout,
          .timer = {&environment.clock, environment.tracer.spans()}};
}

}  // namespace

Trainer::Trainer(const TrainConfig& recipe, const TrainerEnvironment& environment)
    : recipe_(recipe),
      env_(environment),
      logger_({recipe_, env_.environment, *env_.device, env_.clock, env_.log, env_.tracer.spans(),
               env_.communicator.rank(), env_.communicator.size(), env_.permit}),
      finite_(env_.device),
      data_(recipe_, env_.task, env_.strategy.share(), env_.device, env_.log, env_.tracer.spans()),
      schedule_batch_(recipe_.batch.global),
      schedule_(schedule_of_run()),
      engine_(env_.task, env_.strategy, env_.communicator, env_.device, engine_options(recipe_, env_),
              env_.log),
      stragglers_(env_.communicator, env_.clock) {
  check_same_data(data_.fingerprint(), env_.communicator, start_deadline());
  logger_.name_samples(data_.shared_train());
  engine_.prepare(parts(), start_deadline());
  try {
    resume();
  } catch (const Error& error) {
    // What it was told to go on from is unfit. A fault of the machine is none of this: a restart may get over
    // it.
    if (error.exit_code() == ExitCode::usage || error.exit_code() == ExitCode::data) leave_nothing();
    throw;
  }
  start_trace();
  env_.strategy.begin(start_deadline());
  if (const AsyncSteps* steps = env_.strategy.asynchronous()) place_at(steps->own_steps());
  count_steps();
  check_smallest_batch();
}

// Batch norm has no statistics of one value a channel. Whether it meets that depends on the shapes within the
// network, so where a pass may have one sample only, one is tried; better now than behind an epoch.
void Trainer::check_smallest_batch() {
  const bool alone = !recipe_.sync_batch_norm || env_.communicator.size() == 1;
  if (!alone || data_.smallest_pass() > 1 || !has_batch_norm(env_.strategy.module())) return;
  const NamedTensors buffers = env_.strategy.module().named_buffers();
  std::vector<Tensor> before;
  for (const auto& [name, tensor] : buffers) before.push_back(tensor.detach().clone());
  try {
    env_.strategy.evaluate(example(env_.device, 1));  // the network is in training: nobody has said otherwise
  } catch (const UsageError& error) {
    leave_nothing();
    throw UsageError(
        fmt::format("{}; some passes of an epoch have one sample ({} samples, {} in a step, {} shares), of "
                    "which batch norm "
                    "has no statistics: use --drop-last, another --global-batch-size, or --sync-batch-norm",
                    error.what(), data_.train().size(), recipe_.batch.global, env_.strategy.share().size));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) Tensor(buffers[i].second).copy_from(before[i]);
}

// Where this rank goes on, of ranks that do not step together.
void Trainer::place_at(std::int64_t step) {
  if (step == at_.step) return;
  const StepSampler& sampler = data_.sampler();
  const std::int64_t per_epoch = sampler.steps_from(0);
  at_.step = at_.resumed_from = step;
  at_.epoch = step / per_epoch;
  at_.position = 0;
  for (std::int64_t done = 0; done < step % per_epoch; ++done) at_.position = sampler.next(at_.position);
}

TrainingParts Trainer::parts() {
  const auto vectors = std::make_shared<std::set<std::string>>();  // known once the network is
  return {
      .build =
          [this, vectors](const std::shared_ptr<Device>& device) {
            Generator generator(recipe_.seed);
            auto network = env_.task.build(data_.train().fields(), generator, device);
            generator_state_ = generator.state();
            load_initial_weights(*network);
            freeze_parameters(*network);
            apply_layer_options(*network);
            *vectors = names_of_vectors(network->named_parameters());
            return network;
          },
      .make_optimizer =
          [this, vectors](const NamedTensors& parameters) {
            return make_optimizer(recipe_.optimizer, parameters, *vectors);
          },
      .limits = recipe_.optimizer.limits,
      .example =
          [this](const std::shared_ptr<Device>& device) { return example(device, recipe_.batch.per_worker); },
      .chosen = [this] { return chosen_before(); }};
}

// Rank 0 reads it before the run is locked: it is replaced whole, and what is kept of it is what this start
// records again.
std::map<std::string, std::string> Trainer::chosen_before() {
  std::string text;
  if (is_root()) {
    run_dir_ = choose_run_dir(recipe_, env_.environment);
    text = format_choices(read_choices(recipe_, RunDirectory(run_dir_)));
  }
  return parse_choices(broadcast_text(env_.communicator, text, start_deadline()));
}

// A pass of the first samples.
Tensors Trainer::example(const std::shared_ptr<Device>& device, std::int64_t samples) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(std::min(samples, data_.train().size())));
  std::iota(order.begin(), order.end(), 0);
  Loader loader(data_.shared_train(), device, {.batch_size = static_cast<std::int64_t>(order.size())});
  loader.start(std::move(order), 0);
  const auto batch = loader.next(start_deadline());
  Tensors inputs;
  for (const Tensor& input : env_.task.inputs(to_tensors(*batch, device))) inputs.push_back(input.clone());
  device->compute_stream().synchronize();  // the batch is still being copied from
  return inputs;
}

// What a checkpoint has, if the run goes on from one, comes later and wins.
void Trainer::load_initial_weights(Module& network) {
  if (recipe_.init_from.empty()) return;
  const auto divided = [](const MeshAxis& axis) { return axis.name == "tp" && axis.size > 1; };
  if (std::any_of(recipe_.mesh.begin(), recipe_.mesh.end(), divided))
    throw UsageError(
        "--init-from: expected workers that each hold whole layers, got --tensor; train one step without it, "
        "then go on from that checkpoint");
  load_weights(network, open_weights(recipe_.init_from, "--init-from", env_.log), recipe_.model);
}

// Before anything looks at which parameters learn.
void Trainer::freeze_parameters(Module& network) {
  if (recipe_.freeze.empty()) return;
  const std::size_t all = network.named_parameters().size();
  try {
    freeze(network, recipe_.freeze);
  } catch (const UsageError& error) {
    throw UsageError(std::string("--") + error.what());
  }
  const NamedTensors frozen = frozen_parameters(network);
  if (frozen.size() == all)
    throw UsageError(fmt::format(
        "--freeze: expected patterns that leave a parameter to learn, got some that match all {}", all));
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : frozen) elements += tensor.numel();
  frozen_note_ = fmt::format("--freeze: {} of {} parameters do not learn, {} of {} elements", frozen.size(),
                             all, elements, network.parameter_count());
}

void Trainer::apply_layer_options(Module& network) {
  if (recipe_.recompute && recompute_blocks(network) == 0) {
    throw UsageError(fmt::format(
        "--recompute: expected a model with blocks that can be computed again (resnet18, resnet50, "
        "transformer), got {}, which has none; leave the option out",
        recipe_.model));
  }
  if (!recipe_.sync_batch_norm) return;
  // Those that share a batch norm's batch; one alone has all of it.
  Communicator& sharing = env_.copies != nullptr ? *env_.copies : env_.communicator;
  const auto peers = sharing.size() == 1 ? nullptr : make_batch_peers(sharing, recipe_.collective_timeout);
  if (synchronize_batch_norms(network, peers) > 0) return;
  throw UsageError(
      fmt::format("--sync-batch-norm: expected a model with batch norm (resnet18, resnet50), got {}, "
                  "which has none; leave the option out",
                  recipe_.model));
}

// From where the run is: steps that are done may have been larger or smaller, with another number of workers.
void Trainer::count_steps() {
  at_.total_steps = recipe_.max_steps.value_or(INT64_MAX);
  if (recipe_.epochs == INT64_MAX) return;
  const StepSampler& sampler = data_.sampler();
  const std::int64_t whole =
      std::max<std::int64_t>(recipe_.epochs - at_.epoch - 1, 0) * sampler.steps_from(0);
  const std::int64_t left = at_.epoch < recipe_.epochs ? whole + sampler.steps_from(at_.position) : 0;
  at_.total_steps = std::min(at_.total_steps, at_.step + left);
}

// Rank 0 picks the checkpoint. It hands everything to the others, who need not see its disk, or, where every
// rank holds a part of its own, the checkpoint's name.
void Trainer::resume() {
  std::unique_ptr<CheckpointStore> locked;
  std::optional<Checkpoint> checkpoint;
  std::exception_ptr trouble;  // with the disk
  if (is_root()) {
    if (run_dir_.empty()) run_dir_ = choose_run_dir(recipe_, env_.environment);
    if (!std::filesystem::exists(run_dir_)) made_run_ = run_dir_;
    locked = lock_run(recipe_, RunDirectory(run_dir_), env_.permit, env_.log);  // before looking inside
    try {
      checkpoint = find_checkpoint(
          recipe_, RunDirectory(run_dir_), [this](const Checkpoint& found) { return finite_.find(found); },
          env_.log);
    } catch (const UsageError&) {
      throw;
    } catch (const Error&) {
      if (recipe_.peer_snapshots == 0) throw;
      trouble = std::current_exception();
    }
  }
  prepare_copies();
  take_copy(checkpoint, trouble);
  if (is_root() && checkpoint)
    check_resumed_data(checkpoint->path, checkpoint->state, data_.train(), *data_.test(), data_.fingerprint(),
                       env_.log);
  run_dir_ = broadcast_text(env_.communicator, run_dir_.string(), start_deadline());
  start_saving(std::move(locked), checkpoint);
  open_logs();
  share(checkpoint);
}

bool Trainer::share(std::optional<Checkpoint>& checkpoint) {
  const std::string state_text = broadcast_text(
      env_.communicator, checkpoint ? format_training_state(checkpoint->state, {}) : "", start_deadline());
  if (state_text.empty()) return false;
  if (env_.strategy.sharded()) {
    const std::string path =
        broadcast_text(env_.communicator, checkpoint ? checkpoint->path.string() : "", start_deadline());
    if (!checkpoint) checkpoint = load_checkpoint(path, CheckValues::later);
  }
  take_over(state_text, checkpoint ? &*checkpoint : nullptr);
  return true;
}

// Checkpoints and copies in memory are only taken of what all agreed on.
void Trainer::go_back(const ReplicaError& why) {
  take_reports(0);
  saver_->drain();
  std::optional<Checkpoint> state;
  if (is_root()) {
    env_.log.write(LogLevel::warning, why.what());
    state = CheckpointStore(RunDirectory(run_dir_).checkpoints(), 0, env_.log)
                .latest([this](const Checkpoint& found) { return finite_.find(found); });
  }
  take_copy(state, nullptr);
  if (!share(state) || at_.step <= went_back_to_) throw ReplicaError(why);
  // At the start the strategy's begin() does this.
  if (!env_.strategy.sharded())
    copy_from_first_rank(env_.communicator, env_.strategy.module().state_dict(), start_deadline());
  engine_.forget_recordings();
  went_back_to_ = at_.step;
  at_.evaluated_step.reset();
  count_steps();
  begin_start(0, state);
  logger_.message(fmt::format("going on after step {}, the last that all workers agreed on", at_.step));
}

// This start of the run, or the run going back in the middle of one.
void Trainer::begin_start(std::uint64_t bytes, const std::optional<Checkpoint>& checkpoint) {
  const std::int64_t step = checkpoint ? checkpoint->state.step : 0;
  const std::int64_t start = saver_->begin(
      bytes, step, checkpoint ? std::span(checkpoint->refused) : std::span<const RefusedCheckpoint>());
  at_.start =
      parse_integer(broadcast_text(env_.communicator, std::to_string(start), start_deadline())).value_or(0);
  if (!is_root()) return logger_.forget();
  const std::string config = config_json(env_.options, env_.environment, recipe_, data_.train().fields(),
                                         *env_.device, env_.strategy.report(0).choices);
  logger_.record_in(RunDirectory(run_dir_), config, at_.start, step);
}

void Trainer::prepare_copies() {
  if (recipe_.peer_snapshots == 0) return;
  if (!env_.strategy.replicated())
    throw UsageError(
        "--peer-snapshots: expected workers that each hold the whole state, got workers that hold parts of "
        "it "
        "(--shard, --tensor), which only a checkpoint brings together; use --checkpoint-every");
  copies_ =
      std::make_unique<PeerSnapshots>(env_.communicator, env_.environment, env_.log, recipe_.connect_timeout);
}

// What a node has in memory may be newer than what is on the disk, or all that is left.
void Trainer::take_copy(std::optional<Checkpoint>& checkpoint, const std::exception_ptr& trouble) {
  if (!copies_) return;
  auto copy = copies_->find(checkpoint ? checkpoint->state.step : -1, start_deadline());
  if (trouble && !copy) std::rethrow_exception(trouble);
  if (!copy) return;
  if (trouble) {
    try {
      std::rethrow_exception(trouble);
    } catch (const Error& error) {
      env_.log.write(LogLevel::warning, fmt::format("no checkpoint was read: {}", error.what()));
    }
  }
  if (checkpoint) copy->refused = checkpoint->refused;
  checkpoint = std::move(copy);
}

void Trainer::take_over(const std::string& state_text, const Checkpoint* checkpoint) {
  CheckpointSeals ignored;
  const TrainingState state = parse_training_state(state_text, "state from rank 0", ignored);
  SavedState saved;
  if (checkpoint != nullptr) saved = {&checkpoint->model, &checkpoint->optimizer};
  if (AsyncSteps* steps = env_.strategy.asynchronous()) steps->load_notes(state.extra);
  env_.strategy.load(saved, start_deadline());
  if (engine_.scaler() != nullptr) engine_.scaler()->load_state(scaler_entries(state.extra));
  at_.step = at_.resumed_from = state.step;
  at_.epoch = state.epoch;
  at_.position = state.position_in_epoch;
  // Checkpoints of before 0.2 counted steps here.
  if (!state.extra.contains(kPositionUnit)) at_.position *= recipe_.batch.global;
  at_.position = data_.sampler().first_from(std::min(at_.position, data_.train().size()));
  at_.saved_step = state.step;
  resume_schedule(state);
}

// Every rank keeps a log of its own where it can see rank 0's run directory.
void Trainer::open_logs() {
  logger_.open_logs(
      RunDirectory(run_dir_).logs(),
      fmt::format("rank {} of {}, pid {}, {}, backend {}", env_.communicator.rank(), env_.communicator.size(),
                  ::getpid(), env_.device->name(), env_.communicator.backend()));
  if (!frozen_note_.empty()) logger_.message(frozen_note_);
  if (env_.device->is_emulated()) {
    logger_.message(
        fmt::format("device {}: no GPU but software that behaves like one; rates say nothing about a GPU",
                    env_.device->name()));
  }
  if (recipe_.device != "auto" || !recipe_.devices.empty()) return;
  if (const std::string why = why_no_gpu(*env_.device, env_.environment); !why.empty()) logger_.message(why);
}

// All ranks' times are told from rank 0's this moment, as far as the machines' clocks agree.
void Trainer::start_trace() {
  if (!env_.tracer.wanted()) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::string zero = broadcast_text(env_.communicator, std::to_string(now.count()), start_deadline());
  env_.tracer.begin_run(run_dir_, at_.step, parse_integer(zero).value_or(0));
}

void Trainer::start_saving(std::unique_ptr<CheckpointStore> locked,
                           const std::optional<Checkpoint>& checkpoint) {
  // Most state appears with the first step only.
  const auto copies = static_cast<std::uint64_t>(copies_of_parameters(recipe_.optimizer.rule));
  std::uint64_t bytes = 0;
  if (is_root() || env_.strategy.sharded()) {
    const StateParts parts = env_.strategy.save();
    bytes = checkpoint_bytes({state(), views_of(parts.model), views_of(parts.optimizer)}) * copies;
  }
  if (is_root()) RunDirectory::create(run_dir_, bytes);
  const std::string* mark = find_variable(env_.environment, "DTRAIN_SAVING_FILE");
  saver_ = std::make_unique<CheckpointSaver>(std::move(locked), RunDirectory(run_dir_).checkpoints(),
                                             env_.strategy.sharded(),
                                             SaverContext{.communicator = env_.communicator,
                                                          .log = env_.log,
                                                          .spans = env_.tracer.spans(),
                                                          .permit = env_.permit,
                                                          .start_patience = recipe_.connect_timeout,
                                                          .patience = recipe_.collective_timeout,
                                                          .in_step = env_.strategy.in_step(),
                                                          .mark = mark != nullptr ? *mark : "",
                                                          .before_write = [this] { logger_.sync(); }});
  begin_start(bytes, checkpoint);
  if (!checkpoint) return;
  logger_.message(
      fmt::format("going on after step {} from {}", checkpoint->state.step, checkpoint->path.string()));
}

TrainingState Trainer::state() const {
  TrainingState state;
  state.step = at_.step;
  state.epoch = at_.epoch;
  state.position_in_epoch = at_.position;
  state.generators["weights"] = generator_state_;
  state.extra = identity(recipe_);
  if (const GradScaler* scaler = engine_.scaler()) {
    for (const auto& [name, value] : scaler->state()) state.extra[kScalerPrefix + name] = value;
  }
  if (const AsyncSteps* steps = env_.strategy.asynchronous()) state.extra.merge(steps->notes());
  state.extra.emplace(kPositionUnit, "samples");
  state.extra.merge(to_entries(data_.fingerprint()));
  note_schedule(state);
  return state;
}

}  // namespace dtrain
