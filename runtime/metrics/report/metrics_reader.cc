#include "runtime/metrics/report/metrics_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace dtrain {
namespace {

using nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kLongestLine = 1 << 20;
// Beyond this a step or an epoch is not one that was counted.
constexpr double kMostSteps = 1e15;
constexpr std::size_t kMostTexts = 20;  // texts, the newest
constexpr std::size_t kMostNames = 32;  // of an evaluation's metrics, of a step's parts
constexpr std::size_t kMostRanks = 4096;

/// The number at `key`, finite or nothing.
std::optional<double> number(const json& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// The number at `key` when it can be a count.
std::optional<double> count(const json& record, const char* key) {
  const auto value = number(record, key);
  return value && *value >= 0 && *value <= kMostSteps ? value : std::nullopt;
}

void put(Curve& curve, const CurvePoint& point) {
  while (!curve.empty() && curve.back().step >= point.step) curve.pop_back();
  curve.push_back(point);
}

void put(Curve& curve, CurvePoint at, const std::optional<double>& value) {
  if (!value) return;
  at.value = *value;
  put(curve, at);
}

/// Seconds since the file's first time.
double seconds_of(RunMetrics& metrics, const json& record) {
  const auto time = number(record, "time");
  if (!time) return metrics.first_time ? *metrics.last_time - *metrics.first_time : kNone;
  if (!metrics.first_time) metrics.first_time = time;
  metrics.last_time = time;
  return *time - *metrics.first_time;
}

void add_step(RunMetrics& metrics, const json& record) {
  const double step = count(record, "step").value_or(static_cast<double>(metrics.last_step) + 1);
  metrics.last_step = static_cast<std::int64_t>(step);
  const CurvePoint at{step, seconds_of(metrics, record), kNone};
  const auto loss = number(record, "loss");
  if (loss || record.contains("loss")) put(metrics.train_loss, {step, at.seconds, loss.value_or(kNone)});
  if (!loss && record.contains("loss") && metrics.losses_not_finite++ == 0)
    metrics.first_loss_not_finite = metrics.last_step;
  put(metrics.learning_rate, at, number(record, "lr"));
  put(metrics.samples_per_second, at, number(record, "samples_per_second"));
  put(metrics.allocated_bytes, at, number(record, "allocated_bytes"));
  put(metrics.resident_bytes, at, number(record, "resident_bytes"));
}

/// The row of the record's epoch; null when it does not say.
EpochRow* row_of(RunMetrics& metrics, const json& record) {
  const auto epoch = count(record, "epoch");
  return epoch ? &metrics.epochs[static_cast<std::int64_t>(*epoch)] : nullptr;
}

void add_epoch(RunMetrics& metrics, const json& record) {
  if (const auto step = count(record, "step")) metrics.last_step = static_cast<std::int64_t>(*step);
  seconds_of(metrics, record);
  EpochRow* const row = row_of(metrics, record);
  if (row == nullptr) return;
  row->seconds = number(record, "seconds");
  const auto whole = record.find("whole");
  row->whole = whole == record.end() || !whole->is_boolean() || whole->get<bool>();
}

void add_evaluation(RunMetrics& metrics, const json& record) {
  const CurvePoint at{static_cast<double>(metrics.last_step), seconds_of(metrics, record), kNone};
  put(metrics.eval_loss, at, number(record, "loss"));
  EpochRow* const row = row_of(metrics, record);
  if (row != nullptr) row->loss = number(record, "loss");
  for (const auto& [name, value] : record.items()) {
    if (!value.is_number() || name == "epoch" || name == "loss" || name == "samples" || name == "step" ||
        name == "time" || name == "start")
      continue;
    if (!metrics.eval_metrics.contains(name) && metrics.eval_metrics.size() >= kMostNames) continue;
    const auto found = number(record, name.c_str());
    put(metrics.eval_metrics[name], at, found);
    if (row != nullptr && found) row->metrics[name] = *found;
  }
}

/// {"milliseconds":{"forward":[rank 0's, rank 1's, …], …}} as a table; empty when it is not one.
PhaseTimes phases_of(const json& record) {
  PhaseTimes times;
  const auto parts = record.find("milliseconds");
  if (parts == record.end() || !parts->is_object() || parts->size() > kMostNames) return {};
  for (const auto& [name, values] : parts->items()) {
    if (!values.is_array() || values.empty() || values.size() > kMostRanks) return {};
    if (times.parts.empty()) times.milliseconds.resize(values.size());
    if (values.size() != times.milliseconds.size()) return {};
    times.parts.push_back(name);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      if (!values[rank].is_number() || !std::isfinite(values[rank].get<double>())) return {};
      times.milliseconds[rank].push_back(std::max(values[rank].get<double>(), 0.0));
    }
  }
  for (std::size_t rank = 0; rank < times.milliseconds.size(); ++rank)
    times.ranks.push_back(static_cast<std::int64_t>(rank));
  return times;
}

/// The mean of `before`, over `weight` steps, and `next`, over `steps`. Those of other workers start over.
double merge(PhaseTimes& before, double weight, PhaseTimes next, double steps) {
  if (before.parts != next.parts || before.ranks != next.ranks) {
    before = std::move(next);
    return steps;
  }
  for (std::size_t rank = 0; rank < next.ranks.size(); ++rank) {
    for (std::size_t part = 0; part < next.parts.size(); ++part) {
      double& mean = before.milliseconds[rank][part];
      mean += (next.milliseconds[rank][part] - mean) * (steps / (weight + steps));
    }
  }
  return weight + steps;
}

}  // namespace

bool MetricsReader::record(std::string_view text) {
  json record;
  try {
    record = json::parse(text, nullptr, false);
  } catch (const json::exception&) {  // a number too large for a double
    return false;
  }
  if (!record.is_object()) return false;
  // What a start wrote after the next one had taken over is not part of the run.
  const double start = count(record, "start").value_or(newest_start_);
  if (start < newest_start_) return true;
  newest_start_ = start;
  const json event = record.value("event", json());
  if (event == "step") {
    add_step(metrics_, record);
  } else if (event == "epoch") {
    add_epoch(metrics_, record);
  } else if (event == "eval") {
    add_evaluation(metrics_, record);
  } else if (event == "sample") {
    const auto step = count(record, "step");
    const json said = record.value("text", json());
    if (!step || !said.is_string()) return true;
    metrics_.shown[static_cast<std::int64_t>(*step)] = said.get<std::string>();
    if (metrics_.shown.size() > kMostTexts) metrics_.shown.erase(metrics_.shown.begin());
  } else if (event == "phases") {
    PhaseTimes times = phases_of(record);
    const double steps = count(record, "steps").value_or(1);
    if (times.empty() || steps < 1) return true;
    phase_steps_ = merge(metrics_.phases, phase_steps_, std::move(times), steps);
    metrics_.phases.measured = fmt::format("mean of {:.0f} steps", phase_steps_);
  }
  return true;
}

void MetricsReader::line(std::string_view text) {
  ++metrics_.lines;
  if (record(text)) return;
  if (metrics_.lines_left_out++ == 0) metrics_.first_line_left_out = metrics_.lines;
}

void MetricsReader::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!passing_) begun_ += piece;
    if (begun_.size() > kLongestLine) {
      passing_ = true;
      begun_.clear();
    }
    if (end == std::string_view::npos) return;
    if (std::exchange(passing_, false)) begun_ = "too long";
    line(begun_);
    begun_.clear();
  }
}

}  // namespace dtrain
