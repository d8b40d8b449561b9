// The loop. Setting up is in trainer_setup.cc.
#include "models/training/trainer.h"

#include <fmt/format.h>

#include <cmath>

#include "models/training/batch_tensors.h"
#include "runtime/metrics/memory.h"

namespace dtrain {

ExitCode Trainer::run() {
  const Autocast autocast(parse_precision(recipe_.precision), low_weights_);
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
  loader_->start(sampler_->order(epoch_, position_));
  while (position_ < train_data_->size() && !finished()) {
    const StepResult result = step();
    ++step_;
    position_ = sampler_->next(position_);
    after_step(result);
    if (result.stop) return false;
  }
  if (position_ < train_data_->size()) return true;
  if (recipe_.eval_every > 0 && (epoch_ + 1) % recipe_.eval_every == 0) evaluate_now();
  ++epoch_;
  position_ = 0;
  if (!recipe_.checkpoint_every) save_checkpoint();
  return true;
}

Trainer::StepResult Trainer::step() {
  const std::int64_t samples = sampler_->share_at(position_);
  // A sample counts the same wherever it is: ranks are averaged, so one with more than its even share weighs
  // more.
  const double even_share =
      static_cast<double>(sampler_->samples_at(position_)) / static_cast<double>(env_.communicator.size());
  const Deadline limit = deadline();
  double loss_sum = 0;  // over this rank's part, weighted so that the mean over ranks is that over samples
  optimizer_->zero_grad();
  for (std::int64_t done = 0; done < samples;) {
    const Batch batch = loader_->next(limit).value();
    const BatchTensors tensors = to_tensors(batch, env_.device);
    done += batch.size();
    log_samples(batch.indices);
    clock_.lap(Phase::data);
    const Tensor loss = cross_entropy((*network_)(tensors.inputs), tensors.labels);
    // Passes of unequal size count by their size, so that accumulation never changes what is minimised.
    const double weight = static_cast<double>(batch.size()) / even_share;
    loss_sum += loss.item() * weight;
    clock_.lap(Phase::forward);
    backward(loss, weight, done == samples, loss_sum);
    clock_.lap(Phase::backward);
  }
  const StepResult result = finish_gradients(limit);
  clock_.lap(Phase::communication);
  check_loss(result.loss);
  update_parameters();
  clock_.lap(Phase::optimizer);
  return result;
}

// With loss scaling an overflow only skips the step, until the scale is so small that it cannot be the cause.
void Trainer::check_loss(double loss) const {
  if (std::isfinite(loss) || (scaler_ && scaler_->scale() >= 1)) return;
  throw Error(
      fmt::format("step {} (epoch {}): the loss is {}; nothing was updated, the last checkpoint is good. "
                  "Lower --lr or add --warmup-steps, then run again with --resume auto",
                  step_ + 1, epoch_ + 1, loss));
}

void Trainer::update_parameters() {
  optimizer_->set_lr(schedule_.at(step_));
  if (scaler_) {
    std::vector<Tensor> gradients;
    for (const auto& [name, parameter] : network_->named_parameters()) gradients.push_back(parameter.grad());
    scaler_->unscale(gradients);
  }
  optimizer_->step();
  if (scaler_) scaler_->update();
}

// Gradients of the last pass go to the peers while it runs; those of the passes before only add up.
void Trainer::backward(const Tensor& loss, double weight, bool last_pass, double loss_sum) {
  const auto backward_now = [&] {
    if (scaler_) return loss.backward(scaler_->scale_seed(weight));
    weight == 1.0 ? loss.backward() : loss.backward(Tensor::full({}, weight, env_.device));
  };
  if (!last_pass) {
    const auto no_sync = parallel_->no_sync();
    backward_now();
    return;
  }
  sums_ = {loss_sum / env_.communicator.size(), env_.stop_signal.received() != 0 ? 1.0 : 0.0};
  sums_work_ = env_.communicator.all_reduce(
      {.data = sums_.data(), .count = sums_.size(), .dtype = DType::f64}, ReduceOp::sum, "loss");
  backward_now();
}

Trainer::StepResult Trainer::finish_gradients(const Deadline& deadline) {
  parallel_->finish(deadline);
  sums_work_->wait(deadline);
  return {.loss = sums_[0], .stop = sums_[1] > 0, .samples = sampler_->samples_at(position_)};
}

void Trainer::after_step(const StepResult& result) {
  last_loss_ = result.loss;
  rate_samples_ += result.samples;
  samples_done_ += result.samples;
  const TimePoint now = steady_clock().now();
  if (step_ == resumed_from_ + 1) note_first_step();
  const bool record = step_ % recipe_.log_every == 0 || finished();
  if (record || samples_per_second_ == 0) {
    samples_per_second_ =
        static_cast<double>(rate_samples_) / std::chrono::duration<double>(now - rate_since_).count();
  }
  if (recorder_) {
    recorder_->step({.step = step_,
                     .epoch = epoch_,
                     .loss = result.loss,
                     .lr = optimizer_->lr(),
                     .samples_per_second = samples_per_second_,
                     .loss_scale = scaler_ ? scaler_->scale() : 0,
                     .skipped_steps = scaler_ ? scaler_->skipped() : -1},
                    progress(result), record);
  }
  if (record) {
    rate_since_ = now;
    rate_samples_ = 0;
  }
  clock_.lap(Phase::other);
  clock_.finish_step();
  const auto every = recipe_.checkpoint_every.value_or(0);
  if (every > 0 && step_ % every == 0 && position_ < train_data_->size()) save_checkpoint();
}

Progress Trainer::progress(const StepResult& result) const {
  return {.step = step_,
          .total_steps = total_steps_,
          .epoch = epoch_,
          .epochs = recipe_.epochs == INT64_MAX ? 0 : recipe_.epochs,
          .loss = result.loss,
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
  clock_.lap(Phase::other);
  parallel_->sync_buffers(deadline());
  evaluation_ =
      evaluate(*network_, test_data_, recipe_.batch.per_worker, env_.communicator, env_.device, deadline());
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
  saved_step_ = step_;
  // A GPU's group may have died without this rank having waited for it: nothing is saved from a dead one.
  if (env_.device->type() != DeviceType::cpu) env_.communicator.barrier("checkpoint")->wait(deadline());
  if (recorder_) recorder_->checkpoint(snapshot().snapshot, Deadline::never());
  clock_.lap(Phase::checkpoint);
}

void Trainer::stop_at_signal() {
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
  summary.resident_bytes = resident_bytes();
  summary.peak_resident_bytes = peak_resident_bytes();
  summary.peak_device_bytes = env_.device->peak_allocated_bytes();
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
