#include "training/loop/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel/share.h"
#include "runtime/data/sampler.h"

namespace dtrain {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

/// The first step whose checkpoint has, or leads to, what `error` is about. The initial weights always lead
/// to where they led.
std::int64_t first_refused(const LossError& error) {
  switch (error.where()) {
    case NotFinite::loss:
    case NotFinite::gradients:
      return std::max<std::int64_t>(error.step() - 1, 1);
    case NotFinite::state:
    case NotFinite::evaluation:
      return std::max<std::int64_t>(error.step(), 1);
    case NotFinite::scaled_gradients:
      break;  // weights and losses are good
  }
  return kNoStep;
}

/// Steps whose updates count, at the end that `error` is.
std::int64_t steps_done(const LossError& error) {
  const bool after = error.where() == NotFinite::state || error.where() == NotFinite::evaluation;
  return after ? error.step() : error.step() - 1;
}

}  // namespace

// What is to be saved, or kept by a peer, is looked at by who has it, and all hear of it.
void DivergenceDetector::check(const RankState& parts, const RunProgress& at) {
  const auto name = finite_.find(parts);
  std::int64_t holder = name ? env_.communicator.rank() : env_.communicator.size();
  if (env_.strategy.in_step()) {
    env_.communicator
        .all_reduce({.data = &holder, .count = 1, .dtype = DType::i64}, ReduceOp::min, "what is not finite")
        ->wait(deadline());
  }
  if (holder == env_.communicator.size()) return;
  throw LossError(
      fmt::format("step {} (epoch {}): {} is not finite after the update; it was not saved", at.step,
                  at.last_epoch() + 1, name ? *name : fmt::format("a tensor of rank {}", holder)),
      NotFinite::state, at.step, kNan);
}

void DivergenceDetector::check(const Evaluation& found, const RunProgress& at) {
  if (std::isfinite(found.loss)) return;
  const DataShare share = env_.strategy.in_step() ? env_.strategy.share() : DataShare{};
  std::vector<std::int64_t> own;
  for (int part = share.rank; part < share.rank + share.parts; ++part) {
    const auto more = EvalSampler(data_.test()->size(), share.size, part).order();
    own.insert(own.end(), more.begin(), more.end());
  }
  const std::string sample = bad_sample(data_.test(), std::move(own), at.epoch);
  const std::string what =
      fmt::format("step {} (epoch {}): the test loss is {}", at.step, at.last_epoch() + 1, found.loss);
  if (sample.empty()) throw LossError(what, NotFinite::evaluation, at.step, kNan);
  if (is_root())
    env_.log.write(LogLevel::warning,
                   fmt::format("{}: {}; training resumes, correct the data", what, sample));
}

std::string DivergenceDetector::bad_sample(const std::shared_ptr<const Source>& source,
                                           std::vector<std::int64_t> own, std::int64_t epoch) {
  const auto here = find_bad_sample(source, std::move(own), epoch, config_.seed, config_.collective_timeout);
  std::vector<double> all = {-1, 0, 0};
  if (here) all = {static_cast<double>(here->index), static_cast<double>(here->field), here->value};
  if (env_.strategy.in_step()) {
    std::vector<double> one = all;
    all.resize(one.size() * static_cast<std::size_t>(env_.communicator.size()));
    env_.communicator
        .all_gather({.data = one.data(), .count = one.size(), .dtype = DType::f64},
                    {.data = all.data(), .count = all.size(), .dtype = DType::f64},
                    "samples that are not finite")
        ->wait(deadline());
  }
  for (std::size_t i = 0; i < all.size(); i += 3) {
    if (all[i] < 0) continue;
    return fmt::format("sample {} of {} has {} = {}", place_name(*source, static_cast<std::int64_t>(all[i])),
                       source->name(), source->fields()[static_cast<std::size_t>(all[i + 1])].name,
                       all[i + 2]);
  }
  return "";
}

void DivergenceDetector::watch(const StepReport& report) {
  skipped_ += report.overflowed ? 1 : 0;
  const double scale = report.record.loss_scale;
  if (scale == 0 || scale >= 1 || std::exchange(small_scale_, true) || !is_root()) return;
  env_.log.write(
      LogLevel::warning,
      fmt::format("step {}: the loss scale fell to {}, after {} steps whose gradients overflowed and "
                  "were skipped; float16 may be too narrow for them: --precision bf16 has float32's range",
                  report.record.step, report.record.loss_scale, report.record.skipped_steps));
}

void DivergenceDetector::report_skipped(const RunProgress& at) {
  const std::int64_t steps = at.step - at.resumed_from;
  if (steps == 0 || skipped_ < steps || !is_root()) return;
  env_.log.write(
      LogLevel::warning,
      fmt::format("all {} steps were skipped, since gradients overflowed at each loss scale that was tried: "
                  "nothing was learned; train longer, or use --precision bf16",
                  steps));
}

LossError DivergenceDetector::end_run(const LossError& error, RunCheckpoints& checkpoints,
                                      const RunProgress& at) {
  logger_.bad_loss(error.step(), error.loss(), at);
  RunProgress end = at;
  end.step = steps_done(error);
  std::string message = error.what();
  try {
    const std::string sample =
        error.where() == NotFinite::evaluation
            ? ""
            : bad_sample(data_.shared_train(), logger_.samples_of(error.step()), at.epoch);
    const auto newest = checkpoints.refuse_from(sample.empty() ? first_refused(error) : kNoStep, kDiverged);
    message += advice(error, sample);
    if (!newest) {
      message += ". Run again with --resume auto";
    } else if (*newest < 0) {
      message += ". There is no usable checkpoint: run again, and it starts from the beginning";
    } else {
      message += fmt::format(". Run again with --resume auto, and it resumes from step {}", *newest);
    }
    message += fmt::format("; the samples of the batch are in the run's logs/batch-step-{}-rank-*.json",
                           error.step());
  } catch (const Error&) {
    // A peer, or a disk, that is lost meanwhile must not hide what was found.
  }
  logger_.finish("diverged", end);
  return LossError(message, error.where(), error.step(), error.loss());
}

std::string DivergenceDetector::advice(const LossError& error, const std::string& sample) const {
  const bool kept = error.where() == NotFinite::scaled_gradients ||
                    (error.where() == NotFinite::loss && !env_.device->runs_ahead());
  std::string text = kept                                    ? "; nothing was updated"
                     : error.where() == NotFinite::gradients ? "; their update was not saved"
                                                             : "";
  if (!sample.empty()) return text + fmt::format(": {}. Correct the data", sample);
  const bool half = config_.precision == Precision::fp16;
  const char* const range =
      half ? "; or use --precision bf16: float16 ends at 65504, bfloat16 as float32" : "";
  if (error.where() == NotFinite::scaled_gradients) return text + ". Lower --lr" + range;
  if (error.step() <= 1 && error.where() == NotFinite::loss)
    return text + ", with the initial weights. Scale the inputs and targets, or start from smaller weights" +
           range;
  // A root or a logarithm of 0 has no finite slope, whatever the rate.
  const char* const slope = error.where() == NotFinite::gradients
                                ? ", or the model has an operation without a finite slope there"
                                : "";
  const auto unscaled = [](const Field& field) { return !field.columns.empty() && field.mean.empty(); };
  const char* const scale =
      std::ranges::any_of(data_.shared_train()->fields(), unscaled)
          ? ", or let the network scale the table's columns: --dataset csv:...,scale=standard"
          : "";
  return text + fmt::format(
                    ". Its samples are finite: the updates before were too large{}. Lower --lr ({:g}), or "
                    "add --warmup-steps or --clip-grad-norm{}{}",
                    slope, lr_of(config_.optimizer.rule), scale, range);
}

}  // namespace dtrain
