// The loop. Setting up is in trainer_setup.cc.
#include "training/trainer.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/metrics/memory.h"

namespace dtrain {
namespace {

constexpr std::size_t kStepsAhead = 2;  // steps queued on a GPU whose reports the host has not read

}  // namespace

ExitCode Trainer::run() {
  const Autocast autocast(parse_precision(recipe_.precision), low_weights_);
  try {
    return run_all();
  } catch (...) {
    take_ready_reports();
    throw;
  }
}

ExitCode Trainer::run_all() {
  if (step_ == 0 && recipe_.checkpoint_at_start && saved_step_ != 0) save_checkpoint();
  rate_since_ = steady_clock().now();
  clock_ = StepClock();
  while (!finished()) {
    if (!run_epoch()) {
      stop_at_signal();
      return ExitCode::requeue;
    }
  }
  if (recipe_.eval_every > 0 && evaluated_step_ != step_) evaluate_now();
  if (saved_step_ != step_) save_checkpoint();
  env_.log.note(LogLevel::info, fmt::format("finished after step {}", step_));
  if (recorder_) {
    if (recipe_.profile) recorder_->message(clock_.table());
    recorder_->finish(summarize("finished"), Deadline::never());
  }
  return ExitCode::ok;
}

bool Trainer::finished() const { return step_ >= total_steps_; }

// Trains to the end of the epoch or of the run; false when a stop was asked for.
bool Trainer::run_epoch() {
  loader_->start(sampler_->order(epoch_, position_), epoch_);
  while (position_ < train_data_->size() && !finished()) {
    step();
    ++step_;
    position_ = sampler_->next(position_);
    // The first step is waited for, since somebody is waiting for it.
    const bool ahead = reports_->late() && !finished() && step_ > resumed_from_ + 1;
    take_reports(ahead ? kStepsAhead : 0);
    const auto every = recipe_.checkpoint_every.value_or(0);
    if (every > 0 && step_ % every == 0 && position_ < train_data_->size()) save_checkpoint();
    if (stop_asked_) return false;
  }
  if (position_ < train_data_->size()) return true;
  if (recipe_.eval_every > 0 && (epoch_ + 1) % recipe_.eval_every == 0) evaluate_now();
  ++epoch_;
  position_ = 0;
  if (!recipe_.checkpoint_every) save_checkpoint();
  return true;
}

// On the CPU the loss is known before the update, which then need not happen.
void Trainer::step() {
  env_.tracer.begin_step(step_ + 1);
  const std::string name = fmt::format("step {}", step_ + 1);
  const SpanScope span(env_.tracer.spans(), name, "step");
  const bool full = sampler_->samples_at(position_) == recipe_.batch.global;
  set_lr(*optimizer_, schedule_, step_);
  std::vector<std::shared_ptr<void>> kept;  // host memory the device still copies from
  if (graph_ && graph_->takes(full)) {
    replay_step(kept);
  } else {
    run_step(kept);
  }
  if (reports_->late()) reports_->send(env_.stop_signal.received() != 0);
  reports_->post({step_ + 1, epoch_, optimizer_->lr(), sampler_->samples_at(position_)}, scaler_.get(),
                 std::move(kept));
  clock_.lap(Phase::optimizer);
}

Batch Trainer::next_batch() {
  const SpanScope span = phase("wait for batch");
  Batch batch = loader_->next(deadline()).value();
  log_samples(batch.indices);
  return batch;
}

BatchTensors Trainer::copy_to_device(const Batch& batch) {
  const SpanScope span = phase("copy to device");
  return feed_->take(batch);
}

Tensor Trainer::forward(const BatchTensors& batch, double weight) {
  const SpanScope span = phase("forward");
  Tensor loss = cross_entropy((*network_)(batch["image"]), batch["label"]);
  reports_->add(loss, weight);
  return loss;
}

void Trainer::run_step(std::vector<std::shared_ptr<void>>& kept) {
  const std::int64_t samples = sampler_->share_at(position_);
  optimizer_->zero_grad();
  reports_->begin();
  for (std::int64_t done = 0; done < samples;) {
    const Batch batch = next_batch();
    const BatchTensors tensors = copy_to_device(batch);
    if (reports_->late()) kept.push_back(batch.memory);
    done += batch.size();
    clock_.lap(Phase::data);
    run_pass(tensors, done == samples);
  }
  finish_gradients();
  update_parameters();
}

// All of a step's device work is one launch: passes, all-reduces, update. What the host counts along with the
// device, it counts here.
void Trainer::replay_step(std::vector<std::shared_ptr<void>>& kept) {
  std::vector<Batch> batches;
  for (std::int64_t done = 0; done < sampler_->share_at(position_); done += batches.back().size()) {
    batches.push_back(next_batch());
    kept.push_back(batches.back().memory);
  }
  graph_->load(*feed_, batches);
  clock_.lap(Phase::data);
  if (graph_->is_recorded()) {
    optimizer_->count_replay();
  } else {
    optimizer_->begin_recording();
    graph_->record([this] {
      optimizer_->zero_grad();
      reports_->begin();
      for (const BatchTensors& pass : graph_->inputs()) run_pass(pass, &pass == &graph_->inputs().back());
      finish_gradients();
      update_parameters();
    });
    optimizer_->end_recording();
  }
  optimizer_->prepare_replay();
  graph_->launch();
  for (const auto& [name, tensor] : network_->state_dict()) tensor.mark_modified();
}

void Trainer::run_pass(const BatchTensors& batch, bool last_pass) {
  // A sample counts the same wherever it is: ranks are averaged, so one with more than its even share weighs
  // more. And passes of unequal size count by their size, so that accumulation never changes what is
  // minimised.
  const double even_share =
      static_cast<double>(sampler_->samples_at(position_)) / static_cast<double>(env_.communicator.size());
  const double weight = static_cast<double>(batch.size()) / even_share;
  const Tensor loss = forward(batch, weight);
  clock_.lap(Phase::forward);
  backward(loss, weight, last_pass);
  clock_.lap(Phase::backward);
}

// With loss scaling an overflow only skips the step, until the scale is so small that it cannot be the cause.
void Trainer::check_loss(double loss) const {
  if (std::isfinite(loss) || (scaler_ && scaler_->scale() >= 1)) return;
  throw Error(
      fmt::format("step {} (epoch {}): the loss is {}; nothing was updated, the last checkpoint is good. "
                  "Lower --lr or add --warmup-steps, then run again with --resume auto",
                  step_ + 1, epoch_ + 1, loss));
}

// The same, when the update has happened; the scale has been halved since.
void Trainer::check_late_loss(const StepReport& report) const {
  if (std::isfinite(report.loss) || report.loss_scale >= 0.5) return;
  throw Error(
      fmt::format("step {} (epoch {}): the loss is {}; the last checkpoint is from before and good. "
                  "Lower --lr or add --warmup-steps, then run again with --resume auto",
                  report.note.step, report.note.epoch + 1, report.loss));
}

void Trainer::update_parameters() {
  const SpanScope span = phase("optimizer");
  if (scaler_) scaler_->unscale(optimizer_->gradients());
  optimizer_->step();
  if (scaler_) scaler_->update();
}

// Gradients of the last pass go to the peers while it runs; those of the passes before only add up. On the
// CPU the loss travels beside them, on a GPU behind the step.
void Trainer::backward(const Tensor& loss, double weight, bool last_pass) {
  const SpanScope span = phase("backward");
  const auto backward_now = [&] {
    if (scaler_) return loss.backward(scaler_->scale_seed(weight));
    weight == 1.0 ? loss.backward() : loss.backward(Tensor::full({}, weight, env_.device));
  };
  if (!last_pass) {
    const auto no_sync = parallel_->no_sync();
    backward_now();
    return;
  }
  if (!reports_->late()) reports_->send(env_.stop_signal.received() != 0);
  backward_now();
}

void Trainer::finish_gradients() {
  const SpanScope span = phase("wait for gradients");
  const Deadline limit = deadline();
  parallel_->finish(limit);
  if (reports_->late()) return;
  const double loss = reports_->loss(limit);
  clock_.lap(Phase::communication);
  check_loss(loss);
}

// Reads reports until only `left` are under way: those of the newest steps.
void Trainer::take_reports(std::size_t left) {
  while (reports_->waiting() > left) take_report();
}

void Trainer::take_report() {
  const StepReport report = reports_->take(deadline());
  clock_.lap(Phase::communication);
  if (reports_->late()) check_late_loss(report);
  after_step(report);
}

// When training fails: what is known by then is written down.
void Trainer::take_ready_reports() noexcept {
  try {
    while (reports_->ready()) take_report();
  } catch (const std::exception&) {
    // The failure that brought us here is the one to tell.
  }
}

void Trainer::after_step(const StepReport& report) {
  const StepNote& note = report.note;
  stop_asked_ = stop_asked_ || report.stop;
  last_loss_ = report.loss;
  rate_samples_ += note.samples;
  samples_done_ += note.samples;
  const TimePoint now = steady_clock().now();
  if (note.step == resumed_from_ + 1) note_first_step();
  const bool record = note.step % recipe_.log_every == 0 || note.step >= total_steps_;
  if (record || samples_per_second_ == 0) {
    samples_per_second_ =
        static_cast<double>(rate_samples_) / std::chrono::duration<double>(now - rate_since_).count();
  }
  if (recorder_) {
    const SpanScope span = phase("metrics");
    recorder_->step({.step = note.step,
                     .epoch = note.epoch,
                     .loss = report.loss,
                     .lr = note.lr,
                     .samples_per_second = samples_per_second_,
                     .loss_scale = report.loss_scale,
                     .skipped_steps = report.skipped,
                     .memory = record ? std::optional(memory_use()) : std::nullopt},
                    progress(report), record);
  }
  if (record) {
    rate_since_ = now;
    rate_samples_ = 0;
  }
  clock_.lap(Phase::other);
  clock_.finish_step();
}

MemoryUse Trainer::memory_use() const {
  return {.allocated_bytes = static_cast<std::int64_t>(env_.device->allocated_bytes()),
          .peak_allocated_bytes = static_cast<std::int64_t>(env_.device->peak_allocated_bytes()),
          .resident_bytes = resident_bytes(),
          .peak_resident_bytes = peak_resident_bytes()};
}

Progress Trainer::progress(const StepReport& report) const {
  return {.step = report.note.step,
          .total_steps = total_steps_,
          .epoch = report.note.epoch,
          .epochs = recipe_.epochs == INT64_MAX ? 0 : recipe_.epochs,
          .loss = report.loss,
          .samples_per_second = samples_per_second_,
          .time_left = std::nullopt,
          .resident_bytes = resident_bytes()};
}

// A step that a restart repeats is there more than once: of each step, the lines with the latest start count.
void Trainer::log_samples(std::span<const std::int64_t> indices) {
  if (!samples_log_.is_open()) return;
  samples_log_ << fmt::format("{{\"start\":{},\"step\":{},\"epoch\":{},\"world\":{},\"indices\":[{}]}}\n",
                              start_id_, step_ + 1, epoch_, env_.communicator.size(), fmt::join(indices, ","))
               << std::flush;
}

void Trainer::evaluate_now() {
  take_reports(0);
  const SpanScope span = phase("evaluation");
  clock_.lap(Phase::other);
  parallel_->sync_buffers(deadline());
  evaluation_ = evaluate(*network_, test_data_, recipe_.batch.per_worker, env_.communicator, env_.device,
                         recipe_.collective_timeout);
  evaluated_step_ = step_;
  if (recorder_) {
    // At the end of an epoch and in the middle of one alike: the epoch the last step belonged to.
    const std::int64_t epoch = position_ == 0 && epoch_ > 0 ? epoch_ - 1 : epoch_;
    recorder_->evaluation({.epoch = epoch,
                           .loss = evaluation_->loss,
                           .accuracy = evaluation_->accuracy,
                           .samples = evaluation_->samples},
                          step_);
  }
  rate_since_ = steady_clock().now();
  rate_samples_ = 0;
  clock_.skip();
}

void Trainer::save_checkpoint() {
  take_reports(0);  // which throws before a step that went wrong is saved
  const SpanScope span = phase("checkpoint");
  saved_step_ = step_;
  // A GPU's group may have died without this rank having waited for it: nothing is saved from a dead one.
  if (env_.device->type() != DeviceType::cpu) env_.communicator.barrier("checkpoint")->wait(deadline());
  if (recorder_) recorder_->checkpoint(snapshot().snapshot, Deadline::never());
  clock_.lap(Phase::checkpoint);
}

void Trainer::stop_at_signal() {
  take_reports(0);
  if (saved_step_ != step_) save_checkpoint();
  if (recorder_) {
    recorder_->message(
        fmt::format("stopped by a signal after step {}; the checkpoint is saved, run again to go on", step_));
    recorder_->finish(summarize("stopped"), Deadline::never());
  }
  // Nobody leaves before the checkpoint is written: srun and mpirun may be set to end all tasks when one
  // goes.
  env_.communicator.barrier("stop")->wait(Deadline::never());
}

RunSummary Trainer::summarize(const std::string& status) const {
  RunSummary summary;
  summary.status = status;
  summary.steps = step_;
  summary.epochs = epoch_;
  summary.world_size = env_.communicator.size();
  summary.loss = last_loss_;
  summary.seconds = std::chrono::duration<double>(steady_clock().now() - started_).count();
  summary.samples_per_second = static_cast<double>(samples_done_) /
                               std::max(std::chrono::duration<double>(clock_.total()).count(), 1e-9);
  summary.evaluation = evaluation_;
  summary.seconds_to_first_step = seconds_to_first_step_;
  summary.resumed_from_step = resumed_from_;
  summary.memory = memory_use();
  for (std::size_t i = 0; i <= static_cast<std::size_t>(Phase::other); ++i) {
    const auto phase = static_cast<Phase>(i);
    const double steps = static_cast<double>(std::max<std::int64_t>(clock_.steps(), 1));
    summary.phase_milliseconds[std::string(name_of(phase))] =
        1e3 * std::chrono::duration<double>(clock_.spent(phase)).count() / steps;
  }
  return summary;
}

void Trainer::note_first_step() {
  const auto launch = env_.environment.find("DTRAIN_LAUNCH_TIME_NS");
  if (launch == env_.environment.end() || resumed_from_ > 0) return;
  const auto nanoseconds = parse_integer(launch->second);
  if (!nanoseconds) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  seconds_to_first_step_ = static_cast<double>(now - *nanoseconds) * 1e-9;
}

}  // namespace dtrain
