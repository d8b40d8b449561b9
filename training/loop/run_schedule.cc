#include "training/loop/run_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "training/loop/resumed_options.h"

namespace dtrain {
namespace {

constexpr const char* kScheduleBatch = "schedule-batch";

}  // namespace

RunSchedule::RunSchedule(const TrainConfig& config, const Options& options, std::int64_t samples,
                         LrFactor factor)
    : config_(config),
      options_(options),
      samples_(samples),
      batch_(config.batch.global),
      factor_(std::move(factor)),
      schedule_(make()) {}

LrSchedule RunSchedule::make() const {
  LrSchedule schedule = make_schedule(config_, steps_per_epoch());
  schedule.factor = factor_;
  return schedule;
}

std::int64_t RunSchedule::steps_per_epoch() const {
  const std::int64_t last = config_.drop_last ? 0 : batch_ - 1;
  return std::max<std::int64_t>((samples_ + last) / batch_, 1);
}

// Of epochs by samples, so that neither the rate nor what is left of its curve depends on how large steps are
// or were; of a run whose length is a number of steps, by steps. Where all steps are of one size, both are
// the number of finished steps.
double RunSchedule::position(const RunProgress& at) const {
  if (config_.epochs == INT64_MAX) return static_cast<double>(at.step);
  return static_cast<double>(at.epoch * steps_per_epoch()) +
         static_cast<double>(at.position) / static_cast<double>(batch_);
}

double RunSchedule::set(const std::vector<Optimizer*>& optimizers, const RunProgress& at) const {
  for (Optimizer* const optimizer : optimizers) set_lr(*optimizer, schedule_, position(at));
  return config_.task.has_optimizer && !optimizers.empty() ? optimizers.front()->lr() : lr(at);
}

std::map<std::string, std::string> RunSchedule::entries(const RunProgress& at) const {
  std::map<std::string, std::string> entries = noted_options(options_);
  entries.emplace(kScheduleBatch, std::to_string(batch_));
  entries.insert(noted_lr(lr(at)));
  return entries;
}

void RunSchedule::resume(const std::map<std::string, std::string>& entries, const RunProgress& at, Log* log) {
  if (const auto batch = entries.find(kScheduleBatch); batch != entries.end()) {
    batch_ = std::max<std::int64_t>(parse_integer(batch->second).value_or(batch_), 1);
    const int plateaus = schedule_.plateaus;
    schedule_ = make();
    schedule_.plateaus = plateaus;
  }
  if (log == nullptr) return;
  const std::string changed = changed_options(options_, entries);
  if (!changed.empty())
    log->write(LogLevel::info, fmt::format("resuming from step {} with other options: {}", at.step, changed));
  const bool is_plain = !options_.has("scale-lr") || options_.text("scale-lr") == "none";
  const std::string jump = lr_jump(schedule_, position(at), is_plain, entries);
  if (!jump.empty()) log->write(LogLevel::info, fmt::format("step {}: {}", at.step + 1, jump));
}

}  // namespace dtrain
