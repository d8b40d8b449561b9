#include "runtime/metrics/report/trace_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/metrics/report/read_file.h"

namespace dtrain {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostTraces = 64;
constexpr std::size_t kLargestTrace = 64 << 20;
constexpr std::size_t kMostParts = 32;

/// One rank's spans, added up.
struct Sums {
  std::int64_t rank = -1;
  int steps = 0;
  std::string first, last;  ///< "3", "7"
  double step_milliseconds = 0;
  std::vector<std::string> parts;
  std::vector<double> milliseconds;
};

void add_span(const json& event, Sums& sums) {
  const json category = event.value("cat", json()), name = event.value("name", json());
  const json duration = event.value("dur", json()), rank = event.value("pid", json());
  if (!category.is_string() || !name.is_string() || !duration.is_number() || !rank.is_number_integer())
    return;
  const double milliseconds = duration.get<double>() / 1e3;
  if (!std::isfinite(milliseconds) || milliseconds < 0) return;
  const auto text = name.get<std::string>();
  sums.rank = rank.get<std::int64_t>();
  if (category == "step" && text.starts_with("step ")) {
    ++sums.steps;
    sums.step_milliseconds += milliseconds;
    sums.last = text.substr(5);
    if (sums.first.empty()) sums.first = sums.last;
  } else if (category == "phase") {
    auto found = std::ranges::find(sums.parts, text);
    if (found == sums.parts.end()) {
      if (sums.parts.size() >= kMostParts) return;
      sums.milliseconds.push_back(0);
      found = sums.parts.insert(found, text);
    }
    sums.milliseconds[static_cast<std::size_t>(found - sums.parts.begin())] += milliseconds;
  }
}

/// The mean of a step; what no part covers is one of its own.
std::vector<double> mean_of(const Sums& sums) {
  std::vector<double> means;
  double rest = sums.step_milliseconds;
  for (const double spent : sums.milliseconds) {
    means.push_back(spent / sums.steps);
    rest -= spent;
  }
  means.push_back(std::max(rest, 0.0) / sums.steps);
  return means;
}

}  // namespace

void add_trace(const std::string& json_text, PhaseTimes& times) {
  json trace;
  try {
    trace = json::parse(json_text, nullptr, false);
  } catch (const json::exception&) {
    return;
  }
  if (!trace.is_object()) return;
  const json events = trace.value("traceEvents", json());
  Sums sums;
  for (const json& event : events) {
    if (event.is_object() && event.value("ph", json()) == "X") add_span(event, sums);
  }
  if (sums.steps == 0 || sums.parts.empty()) return;
  std::vector<double> means = mean_of(sums);
  sums.parts.emplace_back("other");
  if (times.empty()) {
    times.parts = sums.parts;
    times.measured = fmt::format("mean of steps {} to {}, which were traced", sums.first, sums.last);
  } else if (times.parts != sums.parts) {
    return;
  }
  times.ranks.push_back(sums.rank);
  times.milliseconds.push_back(std::move(means));
}

PhaseTimes trace_phases(const std::filesystem::path& run) {
  PhaseTimes times;
  for (std::int64_t rank = 0; rank < kMostTraces; ++rank) {
    const auto text = read_if_there(run / fmt::format("trace-rank{}.json", rank), kLargestTrace);
    if (!text) break;
    add_trace(*text, times);
  }
  return times;
}

}  // namespace dtrain
