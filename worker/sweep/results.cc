#include "worker/sweep/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/metrics/run_directory.h"
#include "training/loop/metric_monitor.h"
#include "worker/sweep/text_table.h"

namespace dtrain::sweep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

double number_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

void read_summary(const fs::path& folder, RunResult& result) {
  std::ifstream in(RunDirectory(folder).summary(), std::ios::binary);
  const json summary = json::parse(in, nullptr, false);
  if (!summary.is_object()) return;
  result.seconds = number_in(summary, "seconds");
  result.samples_per_second = number_in(summary, "samples_per_second");
  result.steps = static_cast<std::int64_t>(number_in(summary, "steps"));
  const auto test = summary.find("test");
  if (test == summary.end() || !test->is_object()) {
    if (summary.contains("loss") && summary["loss"].is_number()) result.values["loss"] = summary["loss"];
    return;
  }
  for (const auto& [name, value] : test->items()) {
    if (value.is_number() && name != "samples") result.values[name] = value;
  }
}

// The one that results are sorted by, then the others.
std::vector<std::string> value_columns(const std::vector<RunResult>& results, const std::string& metric) {
  std::set<std::string> names;
  for (const RunResult& result : results) {
    for (const auto& [name, value] : result.values) names.insert(name);
  }
  names.erase(metric);
  std::vector<std::string> columns{metric};
  columns.insert(columns.end(), names.begin(), names.end());
  return columns;
}

std::string remark_on(const RunResult& result) {
  if (result.status == RunStatus::finished) return {};
  if (result.status == RunStatus::failed) return "failed: " + result.cause;
  return std::string(name_of(result.status));
}

}  // namespace

std::string_view name_of(RunStatus status) {
  switch (status) {
    case RunStatus::waiting:
      return "waiting";
    case RunStatus::begun:
      return "begun";
    case RunStatus::finished:
      return "finished";
    case RunStatus::failed:
      return "failed";
  }
  return "";
}

std::vector<RunResult> read_results(const SweepFolder& folder, const std::vector<Run>& runs) {
  std::vector<RunResult> results;
  for (const Run& run : runs) {
    RunResult result;
    result.run = run;
    const auto end = folder.end_of(run);
    std::error_code none;
    if (!end) {
      result.status = fs::exists(folder.run(run.name), none) ? RunStatus::begun : RunStatus::waiting;
    } else if (end->finished) {
      result.status = RunStatus::finished;
      read_summary(folder.run(run.name), result);
    } else {
      result.status = RunStatus::failed;
      result.cause = end->cause;
    }
    results.push_back(std::move(result));
  }
  return results;
}

std::string metric_of(const std::string& asked, const std::vector<RunResult>& results) {
  if (!asked.empty()) return asked;
  const bool accuracy = std::any_of(results.begin(), results.end(), [](const RunResult& result) {
    return result.values.contains("accuracy");
  });
  return accuracy ? "accuracy" : "loss";
}

std::string wrong_metric(const std::string& asked, const std::vector<RunResult>& results) {
  std::set<std::string> known;
  for (const RunResult& result : results) {
    for (const auto& [name, value] : result.values) known.insert(name);
  }
  if (asked.empty() || known.empty() || known.contains(asked)) return {};
  return fmt::format("metric: expected one of {}, which the runs report, got {}", fmt::join(known, ", "),
                     asked);
}

void sort_results(std::vector<RunResult>& results, const std::string& metric) {
  const bool less = less_is_better(metric);
  std::stable_sort(results.begin(), results.end(), [&](const RunResult& a, const RunResult& b) {
    const auto x = a.values.find(metric), y = b.values.find(metric);
    const bool has_x = x != a.values.end(), has_y = y != b.values.end();
    if (has_x != has_y) return has_x;
    if (!has_x) return a.status != RunStatus::failed && b.status == RunStatus::failed;
    return less ? x->second < y->second : x->second > y->second;
  });
}

std::string results_table(const std::vector<RunResult>& results, const std::string& metric) {
  const std::vector<std::string> columns = value_columns(results, metric);
  TextTable table;
  std::vector<std::string> head{"#"};
  if (!results.empty()) {
    for (const auto& [name, value] : results.front().run.swept) head.push_back(name);
  }
  head.insert(head.end(), columns.begin(), columns.end());
  head.emplace_back("seconds");
  table.row(std::move(head));
  int place = 0;
  for (const RunResult& result : results) {
    const bool ranked = result.values.contains(metric);
    std::vector<std::string> cells{ranked ? std::to_string(++place) : "-"};
    for (const auto& [name, value] : result.run.swept) cells.push_back(value);
    for (const std::string& name : columns) {
      const auto found = result.values.find(name);
      cells.push_back(found == result.values.end() ? "-" : fmt::format("{:.4f}", found->second));
    }
    cells.push_back(result.status == RunStatus::finished ? fmt::format("{:.1f}", result.seconds) : "-");
    table.row(std::move(cells), remark_on(result));
  }
  return table.text();
}

std::string results_json(const SweepFolder& folder, const std::vector<RunResult>& results,
                         const std::string& metric) {
  json all = {{"sweep", folder.path().string()}, {"metric", metric}, {"runs", json::array()}};
  for (const RunResult& result : results) {
    json options = json::object(), swept = json::object();
    for (const auto& [name, value] : result.run.options) options[name] = value;
    for (const auto& [name, value] : result.run.swept) swept[name] = value;
    json entry = {{"name", result.run.name},
                  {"status", name_of(result.status)},
                  {"options", options},
                  {"swept", swept},
                  {"values", result.values},
                  {"run_dir", folder.run(result.run.name).string()},
                  {"log", folder.log(result.run.name).string()}};
    if (result.status == RunStatus::finished) {
      entry["seconds"] = result.seconds;
      entry["steps"] = result.steps;
      entry["samples_per_second"] = result.samples_per_second;
    }
    if (result.status == RunStatus::failed) entry["cause"] = result.cause;
    all["runs"].push_back(std::move(entry));
  }
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace dtrain::sweep
