// `dtrain runs [FOLDER]`: which runs there are, and what came of each. `dtrain runs export` is in
// runs_export.cc.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/metrics/progress.h"
#include "runtime/metrics/run_directory.h"
#include "training/log/introduction.h"
#include "training/use/commands.h"
#include "worker/commands.h"
#include "worker/sweep/show.h"
#include "worker/sweep/text_table.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"json", "Runs", "", "", "print one JSON object a line instead of a table"},
    {"help", "Runs", "", "", "print this text"},
};
// clang-format on

struct RunState {
  fs::path path;
  fs::file_time_type written;  ///< its metrics, or what else it has
  std::string model, dataset;
  std::string status;  ///< of its summary; "unfinished" where it has none, or trained on since
  std::int64_t steps = 0;
  std::optional<double> seconds;  ///< of its last start
  std::optional<double> loss;     ///< of the test set, or else of the last step
  std::optional<double> accuracy;
};

Json read_json(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  Json json = Json::parse(in, nullptr, false);
  return json.is_object() ? json : Json::object();
}

std::optional<double> number_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::string text_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

RunState read_run(const fs::path& path) {
  const RunDirectory run(path);
  const Json config = read_json(run.config()), summary = read_json(run.summary());
  const Json identity = config.value("identity", Json::object()),
             test = summary.value("test", Json::object());
  const Progress last = sweep::last_step(run.metrics());
  RunState state;
  state.path = path;
  std::error_code error;
  state.written = fs::last_write_time(run.metrics(), error);
  if (error) state.written = fs::last_write_time(run.config(), error);
  state.model = text_in(identity, "model");
  state.dataset = text_in(identity, "dataset");
  const auto summed = static_cast<std::int64_t>(number_in(summary, "steps").value_or(-1));
  const bool over = summed >= last.step;
  state.status = over ? text_in(summary, "status") : "unfinished";
  state.steps = std::max(summed, last.step);
  if (over) state.seconds = number_in(summary, "seconds");
  state.loss = over ? number_in(test, "loss") : std::nullopt;
  state.accuracy = over ? number_in(test, "accuracy") : std::nullopt;
  return state;
}

/// Those in `folder`, the newest first.
std::vector<RunState> runs_in(const fs::path& folder) {
  std::vector<RunState> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(RunDirectory(entry.path()).config(), error)) runs.push_back(read_run(entry.path()));
  }
  std::sort(runs.begin(), runs.end(),
            [](const RunState& a, const RunState& b) { return a.written > b.written; });
  return runs;
}

Duration age_of(const RunState& run) {
  return std::chrono::duration_cast<Duration>(fs::file_time_type::clock::now() - run.written);
}

std::string table_of(const std::vector<RunState>& runs) {
  const auto digits = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f}", *value) : "";
  };
  TextTable table;
  table.row({"status", "steps", "accuracy", "test loss", "time", "written"}, "run");
  for (const RunState& run : runs) {
    const auto time = run.seconds ? format_duration(std::chrono::duration_cast<Duration>(
                                        std::chrono::duration<double>(*run.seconds)))
                                  : "";
    table.row({run.status, format_count(run.steps), digits(run.accuracy), digits(run.loss), time,
               format_duration(age_of(run)) + " ago"},
              fmt::format("{}  {}, {}", run.path.string(), run.model, run.dataset));
  }
  return table.text();
}

std::string json_of(const RunState& run) {
  Json json = {{"run", run.path.string()},
               {"model", run.model},
               {"dataset", run.dataset},
               {"status", run.status},
               {"steps", run.steps},
               {"seconds_since_written", std::chrono::duration<double>(age_of(run)).count()}};
  if (run.seconds) json["seconds"] = *run.seconds;
  if (run.loss) json["test_loss"] = *run.loss;
  if (run.accuracy) json["test_accuracy"] = *run.accuracy;
  return json.dump();
}

}  // namespace

ExitCode run_runs(const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.arguments;
  if (!arguments.empty() && arguments.front() == "export") {
    arguments.erase(arguments.begin());
    return run_runs_export({arguments, invocation.environment});
  }
  const std::vector<std::string> words = take_words(arguments, 1);
  const Options options = resolve_options("dtrain runs", kOptions, arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain runs [FOLDER] [options]\n\n"
                                   "Lists runs and what came of them.\n\n"
                                   "  export      write runs as files of MLflow or W&B\n\n"
                                   "Examples:\n  dtrain runs\n  dtrain runs sweeps/lr --json\n  dtrain runs "
                                   "export runs/first --to mlflow",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const fs::path folder = words.empty() ? "runs" : words[0];
  std::error_code error;
  if (!words.empty() && !fs::is_directory(folder, error))
    throw UsageError(fmt::format("{}: expected a folder with runs in it, {}", folder.string(),
                                 fs::exists(folder, error) ? "got a file" : "there is none"));
  const std::vector<RunState> runs = runs_in(folder);
  if (options.enabled("json")) {
    for (const RunState& run : runs) fmt::print("{}\n", json_of(run));
  } else if (runs.empty()) {
    fmt::print("no run in {}\n", folder.string());
  } else {
    fmt::print("{}", table_of(runs));
  }
  return ExitCode::ok;
}

}  // namespace dtrain
