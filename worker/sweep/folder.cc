#include "worker/sweep/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/writer_lock.h"
#include "runtime/metrics/run_directory.h"

namespace dtrain::sweep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
// A sweep that was killed lets go of its lock at once; another one does not.
constexpr Duration kLockWait = std::chrono::seconds(2);

json parse_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return json::parse(in, nullptr, false);
}

std::string text_of(const SweepConfig& config, const std::vector<Run>& runs) {
  json plan = {{"format", kFormat},
               {"program", config.program},
               {"nproc_per_node", config.workers},
               {"runs", json::array()}};
  for (const Run& run : runs) {
    json options = json::object();
    for (const auto& [name, value] : run.options) options[name] = value;
    plan["runs"].push_back({{"name", run.name}, {"options", options}});
  }
  return plan.dump(1) + "\n";
}

std::map<std::string, std::string> options_in(const json& run) {
  return run.at("options").get<std::map<std::string, std::string>>();
}

/// What a sweep that is there has, against what is asked for.
class Comparison {
 public:
  Comparison(fs::path file, std::string config) : file_(std::move(file)), config_(std::move(config)) {}

  void same(const std::string& field, const std::string& before, const std::string& now) const {
    if (before != now) refuse(field, before, now);
  }

  void same_options(const std::string& run, const std::map<std::string, std::string>& before,
                    const Run& now) const {
    const std::map<std::string, std::string> asked(now.options.begin(), now.options.end());
    for (const auto& [name, value] : asked) {
      const auto found = before.find(name);
      if (found == before.end() || found->second != value)
        refuse("options." + name + " of run " + run, found == before.end() ? "none" : found->second, value);
    }
    for (const auto& [name, value] : before) {
      if (!asked.contains(name)) refuse("options." + name + " of run " + run, value, "none");
    }
  }

  [[noreturn]] void refuse(const std::string& field, const std::string& before,
                           const std::string& now) const {
    throw UsageError(
        fmt::format("{}: {}: the sweep in {} was started with {}, got {}; use another --sweep-dir for a new "
                    "sweep",
                    config_, field, file_.parent_path().string(), before, now));
  }

 private:
  fs::path file_;
  std::string config_;
};

std::string or_default(const std::string& program) { return program.empty() ? "dtrain train" : program; }

void compare(const json& before, const fs::path& file, const SweepConfig& config,
             const std::vector<Run>& runs) {
  const Comparison compare(file, config.file);
  compare.same("program", or_default(before.at("program").get<std::string>()), or_default(config.program));
  compare.same("nproc_per_node", std::to_string(before.at("nproc_per_node").get<int>()),
               std::to_string(config.workers));
  for (const json& run : before.at("runs")) {
    const auto name = run.at("name").get<std::string>();
    const auto found =
        std::find_if(runs.begin(), runs.end(), [&](const Run& candidate) { return candidate.name == name; });
    if (found == runs.end()) compare.refuse("options", "a run " + name, "none");
    compare.same_options(name, options_in(run), *found);
  }
}

}  // namespace

bool is_finished(const fs::path& folder) {
  const json summary = parse_file(RunDirectory(folder).summary());
  return summary.is_object() && summary.value("status", json()) == "finished";
}

void SweepFolder::check(const SweepConfig& config, const std::vector<Run>& runs) const {
  const fs::path file = path_ / "sweep.json";
  std::error_code none;
  if (!fs::exists(path_, none)) return;
  if (!fs::is_directory(path_, none))
    throw UsageError(fmt::format("--sweep-dir {}: expected a folder, found a file", path_.string()));
  if (!fs::exists(file, none)) {
    const auto own = [](const fs::path& entry) {  // made before sweep.json is
      return entry.filename() == "lock" || entry.filename().string().starts_with(".");
    };
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (!own(entry.path()))
        throw UsageError(
            fmt::format("--sweep-dir {}: expected a new folder or that of a sweep, found {} in it",
                        path_.string(), entry.path().filename().string()));
    }
    return;
  }
  const json before = parse_file(file);
  try {
    if (before.is_discarded()) throw DataError(file.string(), -1, "JSON", "something else");
    if (before.at("format") != kFormat)
      throw DataError(file.string(), -1, fmt::format("format {}", kFormat), before.at("format").dump());
    compare(before, file, config, runs);
  } catch (const json::exception& error) {
    throw DataError(file.string(), -1, "the plan of a sweep", error.what());
  }
}

void SweepFolder::open(const SweepConfig& config, const std::vector<Run>& runs, Log& log) {
  try {
    make_directories(path_);
    lock_ = take_writer_lock(path_ / "lock", Deadline::after(kLockWait), kLockWait, log);
  } catch (const SystemError& error) {
    throw with_context("--sweep-dir", error);
  }
  check(config, runs);
  for (const char* folder : {"runs", "ends", "logs"}) make_directories(path_ / folder);
  replace_file(path_ / "sweep.json", text_of(config, runs));
}

std::optional<RunEnd> SweepFolder::end_of(const Run& run) const {
  const json noted = parse_file(end_file(run.name));
  if (noted.is_object()) {
    try {
      return RunEnd{noted.at("status") == "finished", noted.at("exit_code").get<int>(),
                    noted.at("cause").get<std::string>(), noted.at("seconds").get<double>()};
    } catch (const json::exception& error) {
      throw DataError(end_file(run.name).string(), -1, "how a run ended", error.what());
    }
  }
  if (is_finished(this->run(run.name)))
    return RunEnd{.finished = true, .exit_code = 0, .cause = {}, .seconds = 0};
  return std::nullopt;
}

void SweepFolder::note_end(const Run& run, const RunEnd& end) const {
  const json noted = {{"status", end.finished ? "finished" : "failed"},
                      {"exit_code", end.exit_code},
                      {"cause", end.cause},
                      {"seconds", end.seconds}};
  replace_file(end_file(run.name), noted.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

void SweepFolder::forget_end(const Run& run) const {
  fs::remove(end_file(run.name));
  sync_directory(path_ / "ends");
}

}  // namespace dtrain::sweep
