// A run from top to bottom: start, epochs, steps, evaluation, saving, end.
#include "training/loop/trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "parallel/layout/saved_tensors.h"
#include "parallel/share.h"
#include "parallel/sync/equal_start.h"
#include "training/log/run_records.h"
#include "training/loop/update_entries.h"
#include "training/start/introduce.h"
#include "training/start/same_data.h"

namespace dtrain {
namespace {

constexpr std::size_t kStepsAhead = 2;  // steps queued on a GPU whose reports the host has not read
// How long a run that fails waits for its records to be written.
constexpr Duration kRecordsPatience = std::chrono::seconds(2);
// The same of a run that is refused, which takes its folder away again: a busy machine is no disk that hangs.
constexpr Duration kLeavePatience = std::chrono::seconds(20);

constexpr const char* kPositionUnit = "position-unit";

EngineOptions engine_options(const TrainConfig& config, const TrainerEnvironment& environment) {
  return {.precision = config.precision,
          .graphs = config.graphs,
          .patience = config.collective_timeout,
          .timer = {&environment.clock, environment.tracer.spans()},
          .train_metrics = config.train_metrics};
}

}  // namespace

// ---- start

Trainer::Trainer(const TrainConfig& config, const TrainerEnvironment& environment)
    : config_(config),
      env_(environment),
      logger_({config_, env_.environment, *env_.device, env_.clock, env_.log, env_.tracer.spans(),
               env_.communicator.rank(), env_.communicator.size(), env_.permit, env_.status}),
      data_(config_, env_.task, env_.strategy.share(), env_.device, env_.log, env_.tracer.spans()),
      schedule_(config_, env_.options, data_.train().size(), env_.task.lr_factor()),
      monitor_(config_),
      engine_(env_.task, env_.strategy, env_.communicator, env_.device, engine_options(config_, env_),
              env_.log),
      finite_(env_.device),
      checkpoints_(config_, env_, finite_),
      divergence_(config_, env_, finite_, data_, logger_),
      stragglers_(env_.communicator, env_.clock, place_of(*env_.device),
                  StragglerScore(stages_of_ranks(config_, env_.communicator.size()), env_.straggler_window)) {
  if (config_.sample_every > 0 && !env_.task.shows())
    throw UsageError(
        fmt::format("--sample-every: expected a task that can show a sample (a language model), got {}",
                    env_.task.name()));
  check_same_data(data_.fingerprint(), env_.communicator, start_deadline());
  logger_.name_samples(data_.shared_train(), data_.test());
  logger_.costs(env_.task.training_cost(data_.train().fields()));
  engine_.prepare(factory(), data_.train().fields(), start_deadline());
  try {
    resume();
  } catch (const Error& error) {
    // What it was told to resume from is unfit. A restart may get over a fault of the machine.
    if (error.exit_code() == ExitCode::usage || error.exit_code() == ExitCode::data) leave_nothing();
    throw;
  }
  start_trace();
  env_.strategy.begin(start_deadline());
  // Ranks that do not step together have each made steps of their own.
  if (const AsyncSteps* steps = env_.strategy.asynchronous())
    progress_.resume_at(steps->own_steps(), data_.sampler());
  progress_.count_steps(config_, data_.sampler());
  try {
    check_smallest_batch(config_, data_, env_.strategy, env_.communicator.size(), [this] {
      return example_inputs(env_.task, data_.shared_train(), 1, env_.device, start_deadline());
    });
  } catch (const UsageError&) {
    leave_nothing();
    throw;
  }
}

ModelFactory Trainer::factory() {
  return {.build =
              [this](const std::shared_ptr<Device>& device) {
                Communicator& sharing = env_.dp_group != nullptr ? *env_.dp_group : env_.communicator;
                initial_ = make_initial_network(config_, env_.task, data_.train().fields(), sharing, device,
                                                env_.log);
                finite_.take_new(*initial_.network);
                return std::move(initial_.network);
              },
          .make_optimizer =
              [this](const NamedTensors& parameters) {
                if (const OptimizerFactory own = env_.task.make_optimizer()) return own(parameters);
                return make_optimizer(config_.optimizer, parameters, initial_.kinds, initial_.own);
              },
          .limits = config_.optimizer.limits,
          .average = config_.optimizer.average,
          .example =
              [this](const std::shared_ptr<Device>& device) {
                return example_inputs(env_.task, data_.shared_train(), config_.batch.per_worker, device,
                                      start_deadline());
              },
          .earlier_config = [this] { return checkpoints_.tuned_config(); }};
}

void Trainer::resume() {
  checkpoints_.find([this](const Checkpoint& found) {
    check_resumed_data(found.path, found.state, data_.train(), *data_.test(), data_.fingerprint(), env_.log);
  });
  checkpoints_.open(state(), [this] { logger_.sync(); });
  begin_start();
  logger_.message(
      introduction_of(config_, initial_, data_, env_.communicator, *env_.device, checkpoints_.folder()));
  if (const Checkpoint* found = checkpoints_.found())
    logger_.message(
        fmt::format("resuming from step {}, saved as {}", found->state.step, found->path.string()));
  open_logs();
  if (const auto state = checkpoints_.load()) take_over(*state);
  checkpoints_.close_found();
}

void Trainer::take_over(const TrainingState& state) {
  load_update_entries(state.extra, engine_.scaler(), env_.strategy.average());
  progress_.step = progress_.resumed_from = state.step;
  progress_.epoch = state.epoch;
  progress_.position = state.position_in_epoch;
  // Checkpoints of before 0.2 counted steps here.
  if (!state.extra.contains(kPositionUnit)) progress_.position *= config_.batch.global;
  progress_.position = data_.sampler().first_from(std::min(progress_.position, data_.train().size()));
  progress_.saved_step = state.step;
  monitor_.load(state.schedule);
  schedule_.set_plateaus(monitor_.plateaus());
  schedule_.resume(state.extra, progress_, is_root() ? &env_.log : nullptr);
}

// The run starts, or goes back in the middle: what is recorded from here on is this start's.
void Trainer::begin_start() {
  progress_.start = checkpoints_.begin();
  if (!is_root()) return logger_.forget();
  const std::string config = config_json(env_.options, env_.environment, config_, data_.train().fields(),
                                         *env_.device, env_.strategy.report(0).tuned_config);
  const Checkpoint* found = checkpoints_.found();
  logger_.record_in(RunDirectory(checkpoints_.folder()), config, progress_.start,
                    found != nullptr ? found->state.step : 0);
}

// Every rank keeps a log of its own where it can see rank 0's run directory.
void Trainer::open_logs() {
  const std::string way = env_.communicator.all_reduce_text();
  logger_.open_logs(RunDirectory(checkpoints_.folder()).logs(),
                    fmt::format("rank {} of {}, pid {}, {}, backend {}{}{}", env_.communicator.rank(),
                                env_.communicator.size(), ::getpid(), env_.device->name(),
                                env_.communicator.backend(), way.empty() ? "" : ", all-reduce ", way));
  for (const auto& note : notes_of(config_, initial_, *env_.device, env_.environment)) logger_.message(note);
}

// All ranks' times are counted from rank 0's this moment, as far as the machines' clocks agree.
void Trainer::start_trace() {
  if (!env_.tracer.wanted()) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::string zero = broadcast_text(env_.communicator, std::to_string(now.count()), start_deadline());
  env_.tracer.begin_run(checkpoints_.folder(), progress_.step, parse_integer(zero).value_or(0));
}

// ---- epochs and steps

ExitCode Trainer::run() {
  try {
    if (progress_.step == 0 && config_.checkpoint_at_start && progress_.saved_step != 0) save_checkpoint();
    logger_.begin(progress_);
    env_.communicator.limit_calls(config_.collective_timeout);
    if (config_.eval_first && progress_.step == 0) evaluate();
    while (true) {
      try {
        return train();
      } catch (const ReplicaError& why) {
        go_back(why);
      }
    }
  } catch (const UsageError&) {
    leave_nothing();
    throw;
  } catch (const LossError& error) {
    const LossError explained = divergence_.end_run(error, checkpoints_, progress_);
    logger_.wait(Deadline::after(kRecordsPatience));
    throw explained;
  } catch (...) {
    take_ready_reports();
    throw;
  }
}

// From where the run is to its end or a stop signal.
ExitCode Trainer::train() {
  while (!progress_.finished() && !monitor_.why_stop()) {
    if (train_epoch()) continue;
    finish_with_others();
    save_last();
    logger_.message(fmt::format(
        "stopped by a signal after step {}; the checkpoint is saved, run again to resume", progress_.step));
    finish("stopped");
    return ExitCode::requeue;
  }
  finish_with_others();
  if (config_.eval_every > 0 && progress_.evaluated_step != progress_.step) evaluate();
  save_last();
  if (const auto why = monitor_.why_stop()) logger_.message("stopped early: " + *why);
  divergence_.report_skipped(progress_);
  if (config_.profile) logger_.message(env_.clock.table());
  finish("finished");
  env_.log.note(LogLevel::info, fmt::format("finished after step {}", progress_.step));
  return ExitCode::ok;
}

// Trains to the end of the epoch or of the run; false when a stop was asked for.
bool Trainer::train_epoch() {
  const std::int64_t size = data_.train().size();
  data_.start(progress_.epoch, progress_.position);
  while (progress_.position < size && !progress_.finished()) {
    step();
    // The first step is waited for, since somebody is waiting for it.
    const bool ahead =
        engine_.runs_ahead() && !progress_.finished() && progress_.step > progress_.resumed_from + 1;
    take_reports(ahead ? kStepsAhead : 0);
    if (progress_.step == 1 && is_root()) show_fed();
    checkpoints_.saver().poll();
    logger_.durable(checkpoints_.saver().durable_step());
    watch_over_peers();
    if (config_.sample_every > 0 && progress_.step % config_.sample_every == 0) show();
    if (save_due() && progress_.position < size) save_checkpoint();
    if (progress_.position < size) save_snapshot();
    if (stop_requested_) return false;
  }
  if (progress_.position >= size) end_epoch();
  return true;
}

void Trainer::end_epoch() {
  if (config_.swa_from && progress_.epoch >= *config_.swa_from) env_.strategy.average()->add();
  const bool due = config_.eval_every > 0 && (progress_.epoch + 1) % config_.eval_every == 0;
  if (const auto found = due ? evaluate() : std::nullopt) monitor_.take(*found, progress_.step);
  const bool is_best = due && monitor_.keeps_last();
  schedule_.set_plateaus(monitor_.plateaus());
  ++progress_.epoch;
  progress_.position = 0;
  save_snapshot();
  if (is_best) checkpoints_.saver().drain();  // the best is not postponed
  if (is_best || !config_.checkpoint_every || save_due()) save_checkpoint();
}

void Trainer::step() {
  const std::int64_t number = progress_.step + 1;
  const std::string name = fmt::format("step {}", number);
  env_.permit.check(name);
  env_.tracer.begin_step(number);
  const SpanScope span(env_.tracer.spans(), name, "step");
  const std::int64_t next = data_.sampler().next(progress_.position);
  const StepPlan plan{
      .report = {.record = {.step = number,
                            .epoch = progress_.epoch,
                            .lr = schedule_.set(env_.strategy.optimizers(), progress_)},
                 .samples = data_.sampler().samples_at(progress_.position),
                 .ends_epoch = next >= data_.train().size(),
                 .stop = env_.stop_signal.received() != 0,
                 .save = env_.stop_signal.take_save_request() ||
                         (!env_.strategy.sync_state_alters_steps() && checkpoints_.saver().wants_save())},
      .passes = data_.passes_at(progress_.position),
      .shape = data_.shape_at(progress_.position),
      .check_compute = config_.check_compute > 0 && number % config_.check_compute == 0};
  engine_.step(plan, [this] {
    const SpanScope waiting(env_.tracer.spans(), "wait for batch", "phase");
    Batch batch = data_.next(deadline());
    logger_.samples(batch.indices, progress_);
    return batch;
  });
  progress_.step = number;
  progress_.position = next;
  if (config_.train_metrics && plan.report.ends_epoch)
    logger_.trained(progress_.epoch, engine_.take_train_metrics());
}

// Reads reports until only `left` are under way, those of the newest steps, and logs them.
void Trainer::take_reports(std::size_t left) {
  while (engine_.reports_waiting() > left) {
    StepReport report = engine_.take_report();
    divergence_.watch(report);
    if (const AsyncSteps* steps = env_.strategy.asynchronous()) {
      report.record.staleness = steps->delay().behind;
      report.record.ahead = steps->delay().ahead;
    }
    stop_requested_ = stop_requested_ || report.stop;
    save_requested_ = save_requested_ || report.save;
    if (report.save_asked_elsewhere) env_.stop_signal.answer_save_request();
    logger_.step(report, progress_);
  }
}

// What goes wrong on one rank without any sign: memory, and speed.
void Trainer::watch_over_peers() {
  if (config_.check_replicas > 0 && progress_.step % config_.check_replicas == 0) compare_replicas();
  if (engine_.runs_ahead() || !env_.strategy.in_step()) return;
  const auto compared = stragglers_.after_step(deadline());
  if (compared) logger_.compared(progress_.step, *compared);
}

void Trainer::compare_replicas() {
  const SpanScope span(env_.tracer.spans(), "compare replicas", "phase");
  try {
    check_replicas(env_.strategy.replicas(), deadline());
  } catch (const ReplicaError& error) {
    throw ReplicaError(fmt::format("step {}: {}", progress_.step, error.what()));
  }
  env_.clock.lap(Phase::other);
}

// All ranks take over the newest state they agreed on. Throws `why` if there is none or it was taken before.
void Trainer::go_back(const ReplicaError& why) {
  take_reports(0);
  if (is_root()) env_.log.write(LogLevel::warning, why.what());
  checkpoints_.find_agreed();
  const auto state = checkpoints_.load();
  if (!state) throw ReplicaError(why);
  take_over(*state);
  if (progress_.step <= went_back_to_) throw ReplicaError(why);
  // At the start the strategy's begin() does this.
  if (!env_.strategy.sharded())
    copy_from_first_rank(env_.communicator, env_.strategy.module().state_dict(), start_deadline());
  engine_.forget_recordings();
  went_back_to_ = progress_.step;
  progress_.evaluated_step.reset();
  progress_.count_steps(config_, data_.sampler());
  begin_start();
  checkpoints_.close_found();
  logger_.message(fmt::format("resuming from step {}, the last that all workers agreed on", progress_.step));
}

// ---- evaluation and saving

std::optional<Evaluation> Trainer::evaluate() {
  if (!env_.strategy.in_step() && !is_root()) return std::nullopt;
  take_reports(0);
  const SpanScope span(env_.tracer.spans(), "evaluation", "phase");
  logger_.state(WorkerState::evaluating);
  env_.clock.lap(Phase::other);
  const Evaluation found = engine_.evaluate(data_.test(), config_.batch.per_worker);
  divergence_.check(found, progress_);
  progress_.evaluated_step = progress_.step;
  logger_.evaluation(found, env_.task, progress_);
  return found;
}

// The first training pictures, read a second time so that no step waits for them.
void Trainer::show_fed() {
  const SpanScope span(env_.tracer.spans(), "sample", "phase");
  if (auto fed = data_.first_fed(env_.task, env_.device, deadline())) logger_.fed(std::move(*fed));
}

void Trainer::show() {
  if (!env_.strategy.in_step() && !is_root()) return;
  take_reports(0);
  const SpanScope span(env_.tracer.spans(), "sample", "phase");
  env_.clock.lap(Phase::other);
  const auto number = static_cast<std::uint64_t>(progress_.step / config_.sample_every);
  logger_.shown(engine_.show(data_.test(), number), progress_);
}

void Trainer::save_checkpoint(bool ends) {
  take_reports(0);  // which throws before a step that went wrong is saved
  save_requested_ = false;
  const SpanScope span(env_.tracer.spans(), "checkpoint", "phase");
  progress_.saved_step = progress_.step;
  // Where the host runs ahead the group may have died without this rank having waited for it: nothing is
  // saved from a dead one.
  if (engine_.runs_ahead()) env_.communicator.barrier("checkpoint")->wait(deadline());
  env_.strategy.sync_state(deadline());
  if (config_.check_replicas > 0) compare_replicas();
  const bool saves = is_root() || env_.strategy.sharded();
  RankState parts = saves ? env_.strategy.save() : RankState();
  divergence_.check(parts, progress_);
  if (saves) write(std::move(parts), ends);
  env_.clock.lap(Phase::checkpoint);
}

// At the end of training nothing changes any more, and is written from where it is.
void Trainer::write(RankState parts, bool ends) {
  CheckpointSaver& saver = checkpoints_.saver();
  if (!saver.free()) return saver.postpone(progress_.step);
  parts = on_host(std::move(parts));
  if (!ends) return saver.save({state(), views_of(parts.model), views_of(parts.optimizer)});
  const auto last = std::make_shared<const RankState>(std::move(parts));
  saver.save_in_place({state(), views_of(last->model), views_of(last->optimizer)}, last);
}

// Each node keeps what rank 0 would save.
void Trainer::save_snapshot() {
  PeerSnapshots* const snapshots = checkpoints_.snapshots();
  if (snapshots == nullptr || progress_.step % config_.peer_snapshots != 0) return;
  take_reports(0);
  const SpanScope span(env_.tracer.spans(), "copy to memory", "phase");
  if (engine_.runs_ahead()) env_.communicator.barrier("copy to memory")->wait(deadline());
  if (config_.check_replicas > 0) compare_replicas();
  env_.strategy.sync_state(deadline());
  RankState parts = snapshots->keeps() ? env_.strategy.replica() : RankState();
  divergence_.check(parts, progress_);
  if (snapshots->keeps()) {
    parts = on_host(std::move(parts));
    snapshots->keep({state(), views_of(parts.model), views_of(parts.optimizer)});
  }
  env_.clock.lap(Phase::checkpoint);
}

// What a checkpoint says of the run beside its tensors.
TrainingState Trainer::state() const {
  TrainingState state;
  state.step = progress_.step;
  state.epoch = progress_.epoch;
  state.position_in_epoch = progress_.position;
  state.generators["weights"] = initial_.generator_state;
  state.extra = identity(config_);
  state.schedule = monitor_.state();
  state.extra.merge(update_entries(engine_.scaler(), env_.strategy.average()));
  if (const AsyncSteps* steps = env_.strategy.asynchronous()) state.extra.merge(steps->notes());
  state.extra.emplace(kPositionUnit, "samples");
  state.extra.merge(to_entries(data_.fingerprint()));
  state.extra.merge(schedule_.entries(progress_));
  return state;
}

// ---- end

// Where ranks do not step together, what rank 0 evaluates and saves last is what all of them have done. A
// rank that hangs is the launcher's to report.
void Trainer::finish_with_others() {
  AsyncSteps* const steps = env_.strategy.asynchronous();
  if (steps == nullptr) return;
  take_reports(0);
  steps->finish(Deadline::never());
  logger_.delays(steps->delays());
  progress_.evaluated_step.reset();
  progress_.saved_step.reset();
}

// Whatever was postponed before, what training ends with is saved.
void Trainer::save_last() {
  logger_.state(WorkerState::stopping);
  take_reports(0);
  if (config_.check_replicas > 0) compare_replicas();
  CheckpointSaver& saver = checkpoints_.saver();
  saver.drain();
  if (progress_.saved_step != progress_.step) {
    save_checkpoint(true);
  } else if (saver.owes()) {
    write(env_.strategy.save(), true);
  }
  saver.drain();
  saver.check();
  logger_.durable(saver.durable_step());
}

// Nobody leaves before all is written: srun and mpirun may be set to end all tasks when one goes.
void Trainer::finish(const std::string& status) {
  logger_.finish(status, progress_);
  checkpoints_.saver().drain([this] { return logger_.busy(); });
  logger_.check();
}

// When training fails: what is known by then is written down.
void Trainer::take_ready_reports() noexcept {
  try {
    while (engine_.report_ready()) logger_.step(engine_.take_report(), progress_);
  } catch (const std::exception&) {
    // The failure that brought us here is the one to report.
  }
  logger_.wait(Deadline::after(kRecordsPatience));
}

// What --resume names shows to be unfit before the first step, a task that cannot be trained in it: there is
// no run then.
void Trainer::leave_nothing() noexcept {
  if (!checkpoints_.made_folder() || progress_.step > 0 || progress_.saved_step) return;
  if (!logger_.wait(Deadline::after(kLeavePatience))) return;  // a disk that hangs keeps what it has
  logger_.stop_recording();
  checkpoints_.remove_folder();
}

}  // namespace dtrain
