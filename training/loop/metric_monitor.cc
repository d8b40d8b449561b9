#include "training/loop/metric_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint_files.h"

namespace dtrain {
namespace {

constexpr double kPlateauMargin = 1e-4;  // ReduceLROnPlateau's threshold

const std::string kMonitorPrefix = "monitor.";
constexpr const char* kBest = ".best";

double value_of(const Evaluation& found, const std::string& metric) {
  if (metric == "loss") return found.loss;
  std::string names = "loss";
  for (const auto& [name, value] : found.metrics) {
    if (name == metric) return value;
    names += ", " + name;
  }
  throw UsageError(
      fmt::format("--monitor: expected one of {}, which this run's evaluations have, got {}", names, metric));
}

}  // namespace

bool less_is_better(std::string_view metric) {
  constexpr std::string_view kErrors[] = {"loss", "error", "perplexity", "mse",
                                          "rmse", "mae",   "rmsle",      "mape"};
  return std::ranges::any_of(kErrors, [&](std::string_view error) { return metric.ends_with(error); });
}

// As ReduceLROnPlateau, whose margin is a share of the best value, whatever its sign.
bool MetricMonitor::Best::take(double now, bool less_is_better, double margin, std::int64_t at) {
  const bool is_better = !value           ? std::isfinite(now)
                         : less_is_better ? now < *value * (1 - margin)
                                          : now > *value * (1 + margin);
  if (!is_better) {
    ++since;
    return false;
  }
  value = now;
  since = 0;
  step = at;
  return true;
}

MetricMonitor::MetricMonitor(const TrainConfig& config)
    : metric_(config.monitor),
      is_used_(config.early_stopping || config.keep_best || config.lr_kind == LrKind::plateau),
      keeps_best_(config.keep_best),
      lowers_rate_(config.lr_kind == LrKind::plateau),
      patience_(config.early_stopping),
      lr_patience_(config.lr_patience) {}

void MetricMonitor::take(const Evaluation& found, std::int64_t step) {
  if (!is_used_) return;
  const double value = value_of(found, metric_);
  best_.take(value, less_is_better(metric_), 0, step);
  if (!lowers_rate_) return;
  plateau_.take(value, less_is_better(metric_), kPlateauMargin, step);
  if (plateau_.since <= lr_patience_) return;
  ++plateaus_;
  plateau_.since = 0;
}

std::optional<std::string> MetricMonitor::why_stop() const {
  if (!patience_ || best_.since < *patience_) return std::nullopt;
  if (!best_.value) return fmt::format("{} was not a number in {} evaluations", metric_, best_.since);
  return fmt::format("{} has not been better than {:.6g}, after step {}, in {} evaluation{}", metric_,
                     *best_.value, best_.step, best_.since, best_.since == 1 ? "" : "s");
}

std::map<std::string, double> MetricMonitor::state() const {
  if (!is_used_) return {};
  std::map<std::string, double> state;
  const auto add = [&](const std::string& name, const Best& best) {
    state[name + ".since"] = static_cast<double>(best.since);
    if (!best.value || !std::isfinite(*best.value)) return;
    state[name + kBest] = *best.value;
    state[name + ".step"] = static_cast<double>(best.step);
  };
  add(kMonitorPrefix + metric_, best_);
  if (keeps_best_ && best_.value) state[kBestStep] = static_cast<double>(best_.step);
  if (!lowers_rate_) return state;
  add(kMonitorPrefix + "plateau." + metric_, plateau_);
  state[kMonitorPrefix + "plateaus"] = plateaus_;
  return state;
}

void MetricMonitor::load(const std::map<std::string, double>& state) {
  const auto number = [&](const std::string& name) {
    const auto found = state.find(name);
    return found == state.end() ? std::nullopt : std::optional(found->second);
  };
  const auto read = [&](const std::string& name) {
    return Best{.value = number(name + kBest),
                .since = static_cast<std::int64_t>(number(name + ".since").value_or(0)),
                .step = static_cast<std::int64_t>(number(name + ".step").value_or(0))};
  };
  best_ = read(kMonitorPrefix + metric_);
  plateau_ = read(kMonitorPrefix + "plateau." + metric_);
  plateaus_ = static_cast<int>(number(kMonitorPrefix + "plateaus").value_or(0));
}

}  // namespace dtrain
