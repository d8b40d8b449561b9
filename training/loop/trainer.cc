// The loop. Setting up is in trainer_setup.cc, numbers that are not finite in trainer_not_finite.cc.
#include "training/loop/trainer.h"

#include <fmt/format.h>

#include <utility>

#include "parallel/layout/saved_tensors.h"

namespace dtrain {
namespace {

constexpr std::size_t kStepsAhead = 2;  // steps queued on a GPU whose reports the host has not read
// How long a run that fails waits for its records to be written.
constexpr Duration kRecordsPatience = std::chrono::seconds(2);

}  // namespace

ExitCode Trainer::run() {
  try {
    if (at_.step == 0 && recipe_.checkpoint_at_start && at_.saved_step != 0) save_checkpoint();
    logger_.begin(at_);
    env_.communicator.limit_calls(recipe_.collective_timeout);
    while (true) {
      try {
        return run_on();
      } catch (const ReplicaError& why) {
        go_back(why);
      }
    }
  } catch (const UsageError&) {
    leave_nothing();
    throw;
  } catch (const LossError& error) {
    const LossError explained = end_diverged(error);
    logger_.wait(Deadline::after(kRecordsPatience));
    throw explained;
  } catch (...) {
    take_ready_reports();
    throw;
  }
}

// What --resume names shows to be unfit before the first step, a task that cannot be trained in it: there is
// no run then.
void Trainer::leave_nothing() noexcept {
  if (!made_run_ || at_.step > 0 || at_.saved_step) return;
  if (!logger_.wait(Deadline::after(kRecordsPatience))) return;  // a disk that hangs keeps what it has
  logger_.stop_recording();
  saver_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(*made_run_, ignored);
}

ExitCode Trainer::run_on() {
  while (!finished()) {
    if (!run_epoch()) {
      stop_at_signal();
      return ExitCode::requeue;
    }
  }
  finish_with_others();
  if (recipe_.eval_every > 0 && at_.evaluated_step != at_.step) evaluate();
  save_last();
  report_skipped();
  if (recipe_.profile) logger_.message(env_.clock.table());
  finish("finished");
  env_.log.note(LogLevel::info, fmt::format("finished after step {}", at_.step));
  return ExitCode::ok;
}

// Trains to the end of the epoch or of the run; false when a stop was asked for.
bool Trainer::run_epoch() {
  const std::int64_t size = data_.train().size();
  data_.start(at_.epoch, at_.position);
  while (at_.position < size && !finished()) {
    step();
    ++at_.step;
    at_.position = data_.sampler().next(at_.position);
    // The first step is waited for, since somebody is waiting for it.
    const bool ahead = engine_.runs_ahead() && !finished() && at_.step > at_.resumed_from + 1;
    take_reports(ahead ? kStepsAhead : 0);
    saver_->poll();
    watch_over_peers();
    const auto every = recipe_.checkpoint_every.value_or(0);
    const bool due = every > 0 && at_.step % every == 0;
    if ((due || std::exchange(save_asked_, false)) && at_.position < size) save_checkpoint();
    if (at_.position < size) copy_to_memory();
    if (stop_asked_) return false;
  }
  if (at_.position < size) return true;
  if (recipe_.eval_every > 0 && (at_.epoch + 1) % recipe_.eval_every == 0) evaluate();
  ++at_.epoch;
  at_.position = 0;
  copy_to_memory();
  const auto every = recipe_.checkpoint_every.value_or(1);
  if (!recipe_.checkpoint_every || (every > 0 && at_.step % every == 0)) save_checkpoint();
  return true;
}

void Trainer::step() {
  env_.permit.check(fmt::format("step {}", at_.step + 1));
  env_.tracer.begin_step(at_.step + 1);
  const std::string name = fmt::format("step {}", at_.step + 1);
  const SpanScope span(env_.tracer.spans(), name, "step");
  const StepPlan plan{.report = {.record = {.step = at_.step + 1, .epoch = at_.epoch, .lr = next_lr()},
                                 .samples = data_.sampler().samples_at(at_.position),
                                 .ends_epoch = data_.sampler().next(at_.position) >= data_.train().size()},
                      .passes = data_.passes_at(at_.position),
                      .full = data_.full_at(at_.position),
                      .stop = env_.stop_signal.received() != 0,
                      .save = !env_.strategy.settling_counts() && saver_->wants_save()};
  if (Optimizer* optimizer = env_.strategy.optimizer()) set_lr(*optimizer, schedule_, schedule_position());
  engine_.step(plan, [this] {
    const SpanScope waiting(env_.tracer.spans(), "wait for batch", "phase");
    Batch batch = data_.next(deadline());
    logger_.samples(batch.indices, at_);
    return batch;
  });
}

// Reads reports until only `left` are under way, those of the newest steps, and logs them.
void Trainer::take_reports(std::size_t left) {
  while (engine_.reports_waiting() > left) {
    StepReport report = engine_.take_report();
    watch_scale(report);
    if (const AsyncSteps* steps = env_.strategy.asynchronous()) {
      report.record.staleness = steps->delay().behind;
      report.record.ahead = steps->delay().ahead;
    }
    stop_asked_ = stop_asked_ || report.stop;
    save_asked_ = save_asked_ || report.save;
    logger_.step(report, at_);
  }
}

// When training fails: what is known by then is written down.
void Trainer::take_ready_reports() noexcept {
  try {
    while (engine_.report_ready()) logger_.step(engine_.take_report(), at_);
  } catch (const std::exception&) {
    // The failure that brought us here is the one to tell.
  }
  logger_.wait(Deadline::after(kRecordsPatience));
}

// What goes wrong on one rank without any sign: memory, and speed.
void Trainer::watch_over_peers() {
  if (recipe_.check_replicas > 0 && at_.step % recipe_.check_replicas == 0) compare_replicas();
  if (engine_.runs_ahead() || !env_.strategy.in_step()) return;
  const auto compared = stragglers_.after_step(deadline());
  if (!compared || !is_root()) return;
  if (compared->slow)
    env_.log.write(LogLevel::warning, fmt::format("step {}: {}", at_.step, *compared->slow));
  logger_.phases(at_.step, *compared);
}

void Trainer::compare_replicas() {
  const SpanScope span(env_.tracer.spans(), "compare replicas", "phase");
  try {
    check_replicas(env_.strategy.replicas(), deadline());
  } catch (const ReplicaError& error) {
    throw ReplicaError(fmt::format("step {}: {}", at_.step, error.what()));
  }
  env_.clock.lap(Phase::other);
}

void Trainer::evaluate() {
  if (!env_.strategy.in_step() && !is_root()) return;
  take_reports(0);
  const SpanScope span(env_.tracer.spans(), "evaluation", "phase");
  env_.clock.lap(Phase::other);
  const Evaluation found = engine_.evaluate(data_.test(), recipe_.batch.per_worker);
  check_finite(found);
  at_.evaluated_step = at_.step;
  logger_.evaluation(found, at_);
}

void Trainer::save_checkpoint() {
  take_reports(0);  // which throws before a step that went wrong is saved
  const SpanScope span(env_.tracer.spans(), "checkpoint", "phase");
  at_.saved_step = at_.step;
  // Where the host runs ahead the group may have died without this rank having waited for it: nothing is
  // saved from a dead one.
  if (engine_.runs_ahead()) env_.communicator.barrier("checkpoint")->wait(deadline());
  env_.strategy.settle(deadline());
  if (recipe_.check_replicas > 0) compare_replicas();
  const bool saves = is_root() || env_.strategy.sharded();
  StateParts parts = saves ? env_.strategy.save() : StateParts();
  check_finite(parts);
  if (saves) hand_over(std::move(parts));
  env_.clock.lap(Phase::checkpoint);
}

// Each node keeps what rank 0 would save.
void Trainer::copy_to_memory() {
  if (!copies_ || at_.step % recipe_.peer_snapshots != 0) return;
  take_reports(0);
  const SpanScope span(env_.tracer.spans(), "copy to memory", "phase");
  if (engine_.runs_ahead()) env_.communicator.barrier("copy to memory")->wait(deadline());
  if (recipe_.check_replicas > 0) compare_replicas();
  env_.strategy.settle(deadline());
  StateParts parts = copies_->keeps() ? env_.strategy.replica() : StateParts();
  check_finite(parts);
  if (copies_->keeps()) {
    parts = on_host(std::move(parts));
    copies_->keep({state(), views_of(parts.model), views_of(parts.optimizer)});
  }
  env_.clock.lap(Phase::checkpoint);
}

void Trainer::hand_over(StateParts parts) {
  if (!saver_->free()) return saver_->put_off(at_.step);
  parts = on_host(std::move(parts));
  saver_->save({state(), views_of(parts.model), views_of(parts.optimizer)});
}

// Whatever was put off before, what training ends with is saved.
void Trainer::save_last() {
  take_reports(0);
  if (recipe_.check_replicas > 0) compare_replicas();
  saver_->drain();
  if (at_.saved_step != at_.step) {
    save_checkpoint();
  } else if (saver_->owes()) {
    hand_over(env_.strategy.save());
  }
  saver_->drain();
  saver_->check();
}

// Where ranks do not step together, what rank 0 evaluates and saves last is what all of them have done. A
// rank that hangs is the launcher's to tell of.
void Trainer::finish_with_others() {
  AsyncSteps* const steps = env_.strategy.asynchronous();
  if (steps == nullptr) return;
  take_reports(0);
  steps->finish(Deadline::never());
  logger_.delays(steps->delays());
  at_.evaluated_step.reset();
  at_.saved_step.reset();
}

// Nobody leaves before all is written: srun and mpirun may be set to end all tasks when one goes.
void Trainer::finish(const std::string& status) {
  logger_.finish(status, at_);
  saver_->drain([this] { return logger_.busy(); });
  logger_.check();
}

void Trainer::stop_at_signal() {
  finish_with_others();
  save_last();
  logger_.message(fmt::format(
      "stopped by a signal after step {}; the checkpoint is saved, run again to go on", at_.step));
  finish("stopped");
}

}  // namespace dtrain
