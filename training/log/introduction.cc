#include "training/log/introduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/metrics/progress.h"

namespace dtrain {

std::string format_count(std::int64_t count) {
  const std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string format_seconds(double seconds) {
  if (seconds >= 59.95)
    return format_duration(std::chrono::round<Duration>(std::chrono::duration<double>(seconds)));
  return fmt::format("{:.{}f} s", seconds, seconds < 9.995 ? 2 : 1);
}

std::string text_of(const RunIntroduction& run) {
  std::string network = run.model;
  if (run.parameters > 0) network += fmt::format(": {} parameters", format_count(run.parameters));
  if (run.trained < run.parameters) network += fmt::format(", {} of them trained", format_count(run.trained));
  std::string workers = run.workers == 1 ? "1 worker" : fmt::format("{} workers", format_count(run.workers));
  workers += " on " + run.device;
  if (run.workers > 1) workers += ", backend " + run.backend;
  const std::string optimizer = run.optimizer.empty()
                                    ? "the program's own optimizer"
                                    : fmt::format("{}, learning rate {:g}", run.optimizer, run.lr);
  return fmt::format(
      "{}\n{}: {} samples to train on, {} to test on\n{}\n{} steps of {} samples in an epoch; {}\nfiles: {}",
      network, run.data, format_count(run.train_samples), format_count(run.test_samples), workers,
      format_count(run.steps_per_epoch), format_count(run.global_batch), optimizer, run.folder.string());
}

void BestEvaluation::add(const Evaluation& evaluation, std::int64_t epoch) {
  const auto accuracy = std::find_if(evaluation.metrics.begin(), evaluation.metrics.end(),
                                     [](const auto& metric) { return metric.first == "accuracy"; });
  const bool has_accuracy = accuracy != evaluation.metrics.end();
  const double value = has_accuracy ? accuracy->second : evaluation.loss;
  if (!name_.empty() && (has_accuracy ? value <= value_ : value >= value_)) return;
  name_ = has_accuracy ? "accuracy" : "loss";
  value_ = value;
  epoch_ = epoch;
}

std::string BestEvaluation::text() const {
  return name_.empty() ? std::string()
                       : fmt::format("best test {} {:.4f} (epoch {})", name_, value_, epoch_ + 1);
}

}  // namespace dtrain
