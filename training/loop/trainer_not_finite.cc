// What training does about numbers that are not finite: nothing of them is saved, the run ends at the same
// place on every rank, what would lead there again is set aside, and the message names the cause. The loop is
// in trainer.cc.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel/share.h"
#include "runtime/data/sampler.h"
#include "training/loop/trainer.h"

namespace dtrain {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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
  return std::numeric_limits<std::int64_t>::max();
}

/// Steps whose updates count, at the end that `error` is.
std::int64_t steps_done(const LossError& error) {
  const bool after = error.where() == NotFinite::state || error.where() == NotFinite::evaluation;
  return after ? error.step() : error.step() - 1;
}

}  // namespace

// What is to be saved, or kept by a peer, is looked at by who has it, and all hear of it.
void Trainer::check_finite(const StateParts& parts) {
  const auto name = finite_.find(parts);
  std::int64_t holder = name ? env_.communicator.rank() : env_.communicator.size();
  if (env_.strategy.in_step()) {
    env_.communicator
        .all_reduce({.data = &holder, .count = 1, .dtype = DType::i64}, ReduceOp::min, "what is not finite")
        ->wait(deadline());
  }
  if (holder == env_.communicator.size()) return;
  throw LossError(
      fmt::format("step {} (epoch {}): {} is not finite after the update; it was not saved", at_.step,
                  last_epoch() + 1, name ? *name : fmt::format("a tensor of rank {}", holder)),
      NotFinite::state, at_.step, kNan);
}

void Trainer::check_finite(const Evaluation& found) {
  if (std::isfinite(found.loss)) return;
  const DataShare share = env_.strategy.in_step() ? env_.strategy.share() : DataShare{};
  std::vector<std::int64_t> own;
  for (int part = share.rank; part < share.rank + share.parts; ++part) {
    const auto more = EvalSampler(data_.test()->size(), share.size, part).order();
    own.insert(own.end(), more.begin(), more.end());
  }
  const std::string sample = bad_sample(data_.test(), std::move(own));
  const std::string what =
      fmt::format("step {} (epoch {}): the test loss is {}", at_.step, last_epoch() + 1, found.loss);
  if (sample.empty()) throw LossError(what, NotFinite::evaluation, at_.step, kNan);
  if (is_root())
    env_.log.write(LogLevel::warning,
                   fmt::format("{}: {}; training resumes, correct the data", what, sample));
}

std::string Trainer::bad_sample(const std::shared_ptr<const Source>& source, std::vector<std::int64_t> own) {
  const auto here =
      find_bad_sample(source, std::move(own), at_.epoch, recipe_.seed, recipe_.collective_timeout);
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
  for (std::size_t at = 0; at < all.size(); at += 3) {
    if (all[at] < 0) continue;
    return fmt::format("sample {} of {} has {} = {}", place_name(*source, static_cast<std::int64_t>(all[at])),
                       source->name(), source->fields()[static_cast<std::size_t>(all[at + 1])].name,
                       all[at + 2]);
  }
  return "";
}

void Trainer::watch_scale(const StepReport& report) {
  skipped_ += report.overflowed ? 1 : 0;
  const double scale = report.record.loss_scale;
  if (scale == 0 || scale >= 1 || std::exchange(small_scale_, true) || !is_root()) return;
  env_.log.write(
      LogLevel::warning,
      fmt::format("step {}: the loss scale fell to {}, after {} steps whose gradients overflowed and "
                  "were skipped; float16 may be too narrow for them: --precision bf16 has float32's range",
                  report.record.step, report.record.loss_scale, report.record.skipped_steps));
}

void Trainer::report_skipped() {
  const std::int64_t steps = at_.step - at_.resumed_from;
  if (steps == 0 || skipped_ < steps || !is_root()) return;
  env_.log.write(
      LogLevel::warning,
      fmt::format("all {} steps were skipped, since gradients overflowed at each loss scale that was tried: "
                  "nothing was learned; train longer, or use --precision bf16",
                  steps));
}

LossError Trainer::end_diverged(const LossError& error) {
  logger_.bad_loss(error.step(), error.loss(), at_);
  RunPosition end = at_;
  end.step = steps_done(error);
  std::string message = error.what();
  try {
    const std::string sample = error.where() == NotFinite::evaluation
                                   ? ""
                                   : bad_sample(data_.shared_train(), logger_.samples_of(error.step()));
    const auto newest = refuse_what_leads_to(error, !sample.empty());
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

std::optional<std::int64_t> Trainer::refuse_what_leads_to(const LossError& error, bool data_are_bad) {
  saver_->drain();
  const std::int64_t first = data_are_bad ? std::numeric_limits<std::int64_t>::max() : first_refused(error);
  if (copies_) copies_->drop_from(first);
  std::string newest;
  if (is_root()) newest = std::to_string(saver_->refuse_from(first, kDiverged).value_or(-1));
  if (env_.strategy.in_step()) newest = broadcast_text(env_.communicator, newest, deadline());
  return parse_integer(newest);
}

std::string Trainer::advice(const LossError& error, const std::string& sample) const {
  const bool kept = error.where() == NotFinite::gradients || error.where() == NotFinite::scaled_gradients ||
                    (error.where() == NotFinite::loss && !engine_.runs_ahead());
  std::string text = kept ? "; nothing was updated" : "";
  if (!sample.empty()) return text + fmt::format(": {}. Correct the data", sample);
  const bool half = recipe_.precision == Precision::fp16;
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
  return text + fmt::format(
                    ". Its samples are finite: the updates before were too large{}. Lower --lr ({:g}), or "
                    "add --warmup-steps or --clip-grad-norm{}",
                    slope, lr_of(recipe_.optimizer.rule), range);
}

}  // namespace dtrain
