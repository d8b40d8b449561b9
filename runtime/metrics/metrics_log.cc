#include "runtime/metrics/metrics_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The shortest text that reads back as the same double; JSON has no NaN and no infinity.
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  std::string result(text, end);
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

std::string memory_fields(const std::optional<MemoryUse>& memory) {
  if (!memory) return {};
  return fmt::format(
      R"(,"allocated_bytes":{},"peak_allocated_bytes":{},"resident_bytes":{},"peak_resident_bytes":{})",
      memory->allocated_bytes, memory->peak_allocated_bytes, memory->resident_bytes,
      memory->peak_resident_bytes);
}

// A step of -1: an evaluation, anything else, and what is not JSON.
struct LinePlace {
  std::int64_t step = -1, start = 0;
};

LinePlace place_of(const std::string& line) {
  const json record = json::parse(line, nullptr, false);
  if (!record.is_object()) return {};
  const json event = record.value("event", json());
  const bool has_step = event == "step" || event == "epoch" || event == "phases" || event == "sample";
  if (!has_step && event != "eval") return {};
  const json step = has_step ? record.value("step", json()) : json(), start = record.value("start", json());
  return {step.is_number_integer() ? step.get<std::int64_t>() : -1,
          start.is_number_integer() ? start.get<std::int64_t>() : 0};
}

constexpr std::string_view kStartField = R"(,"start":)";

// The line as it is written: with its start, as the last field.
std::string stamped(const std::string& line, std::int64_t start) {
  return fmt::format("{}{}{}}}\n", std::string_view(line).substr(0, line.size() - 1), kStartField, start);
}

// What stamped() was given.
std::string unstamped(const std::string& line) {
  const std::size_t at = line.rfind(kStartField);
  return at == std::string::npos ? line : line.substr(0, at) + "}";
}

std::string time_field(double seconds) {
  return seconds > 0 ? fmt::format(R"(,"time":{:.6f})", seconds) : std::string();
}

}  // namespace

std::string format_record(const StepRecord& record) {
  const std::string scaling = record.skipped_steps < 0
                                  ? ""
                                  : fmt::format(R"(,"loss_scale":{},"skipped_steps":{})",
                                                number(record.loss_scale), record.skipped_steps);
  const std::string delay = record.staleness ? fmt::format(R"(,"staleness":{},"ahead":{})", *record.staleness,
                                                           record.ahead.value_or(0))
                                             : "";
  std::string losses;
  for (const auto& [name, value] : record.losses)
    losses += fmt::format("{}{}:{}", losses.empty() ? R"(,"losses":{)" : ",", nlohmann::json(name).dump(),
                          number(value));
  if (!losses.empty()) losses += "}";
  return fmt::format(
      R"({{"event":"step","step":{},"epoch":{},"loss":{}{},"lr":{},"samples_per_second":{}{}{}{}{}}})",
      record.step, record.epoch, number(record.loss), losses, number(record.lr),
      number(record.samples_per_second), scaling, delay, memory_fields(record.memory),
      time_field(record.time));
}

std::string format_record(const EvalRecord& record) {
  std::string metrics;
  for (const auto& [name, value] : record.metrics)
    metrics += fmt::format(",{}:{}", nlohmann::json(name).dump(), number(value));
  return fmt::format(R"({{"event":"eval","epoch":{},"loss":{}{},"samples":{}}})", record.epoch,
                     number(record.loss), metrics, record.samples);
}

std::string format_record(const EpochRecord& record) {
  std::string train;
  for (const auto& [name, value] : record.train)
    train += fmt::format(",{}:{}", nlohmann::json("train_" + name).dump(), number(value));
  if (record.train_samples > 0) train += fmt::format(",\"train_samples\":{}", record.train_samples);
  return fmt::format(R"({{"event":"epoch","epoch":{},"step":{},"seconds":{},"whole":{}{}{}}})", record.epoch,
                     record.step, number(record.seconds), record.whole, train, time_field(record.time));
}

std::string format_record(const SampleRecord& record) {
  // A token may end within a character.
  return fmt::format(R"({{"event":"sample","step":{},"text":{}}})", record.step,
                     json(record.text).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string format_record(const PhasesRecord& record) {
  std::string parts;
  for (const auto& [name, ranks] : record.milliseconds) {
    std::string values;
    for (const double milliseconds : ranks)
      values += fmt::format("{}{:.4g}", values.empty() ? "" : ",", milliseconds);
    parts += fmt::format("{}{}:[{}]", parts.empty() ? "" : ",", nlohmann::json(name).dump(), values);
  }
  return fmt::format(R"({{"event":"phases","step":{},"steps":{},"milliseconds":{{{}}}{}}})", record.step,
                     record.steps, parts, time_field(record.time));
}

MetricsLog::MetricsLog(const fs::path& path, std::int64_t start)
    : path_(path), start_(start), fd_(open_lines(path)) {}

void MetricsLog::write(const StepRecord& record) {
  kept_evaluations_.clear();
  append_whole(fd_.get(), stamped(format_record(record), start_), path_);
}

void MetricsLog::write(const EvalRecord& record) {
  const std::string line = format_record(record);
  const auto kept = std::find(kept_evaluations_.begin(), kept_evaluations_.end(), line);
  if (kept != kept_evaluations_.end()) {
    kept_evaluations_.erase(kept);
    return;
  }
  append_whole(fd_.get(), stamped(line, start_), path_);
}

void MetricsLog::write(const EpochRecord& record) {
  kept_evaluations_.clear();
  append_whole(fd_.get(), stamped(format_record(record), start_), path_);
}

void MetricsLog::write(const PhasesRecord& record) {
  append_whole(fd_.get(), stamped(format_record(record), start_), path_);
}

void MetricsLog::write(const SampleRecord& record) {
  append_whole(fd_.get(), stamped(format_record(record), start_), path_);
}

void MetricsLog::cut(std::size_t bytes) {
  check(Sys{::ftruncate(fd_.get(), static_cast<off_t>(bytes))}, "truncate " + path_.string());
}

void MetricsLog::truncate_after(std::int64_t step, const RunGenerations& starts) {
  const std::string text = read_whole(fd_.get(), path_);
  kept_evaluations_.clear();
  // Starts whose last step above is nobody's, and so is what they evaluated after it.
  std::set<std::int64_t> gone;
  std::size_t kept = 0, at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    std::string line = text.substr(at, end - at);
    const LinePlace place = place_of(line);
    // This start, which resumes from `step`, does not judge: its own cut does.
    const std::int64_t later = starts.superseded_by(place.start, place.step);
    if (place.step > step && (later == 0 || later >= start_)) break;
    if (later != 0) gone.insert(place.start);
    if (later == 0 && place.step >= 0) gone.erase(place.start);
    if (gone.contains(place.start)) continue;
    if (place.step >= 0)
      kept_evaluations_.clear();
    else
      kept_evaluations_.push_back(unstamped(line));
    kept = end + 1;
  }
  if (kept != text.size()) cut(kept);
  sync();
}

void MetricsLog::sync() { sync_file(fd_.get(), path_); }

}  // namespace dtrain
