// `dtrain sweep config.json`: many trainings over ranges of options, several at a time.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/files/durable_file.h"
#include "training/options/train_config.h"
#include "training/train_main.h"
#include "worker/commands.h"
#include "worker/sweep/checks.h"
#include "worker/sweep/results.h"
#include "worker/sweep/runner.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using sweep::Run, sweep::SweepConfig, sweep::SweepEnd, sweep::SweepFolder;

constexpr std::int64_t kMostJobs = 4096;
constexpr std::string_view kUsage =
    "usage: dtrain sweep CONFIG.json [options]\n\n"
    "Trains with each combination of the options that CONFIG.json lists, or with a\n"
    "random sample of them, several runs at a time. The same command resumes it.\n\n"
    "Examples:\n"
    "  dtrain sweep lr.json --jobs 2";

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"sweep-dir", "Sweep", "DIR", "", "folder of the sweep; unset: sweeps/<name of CONFIG.json>"},
    {"jobs", "Sweep", "N", "", "runs at the same time; unset: as many as give each worker its own core or GPU"},
    {"metric", "Sweep", "NAME", "", "metric to sort by: accuracy, loss or another that evaluation reports; unset: the one in CONFIG.json, else accuracy if it is reported"},
    {"max-restarts", "Sweep", "N", "0", "restart a run whose workers fail up to N times"},
    {"stop-on-failure", "Sweep", "", "", "stop the sweep when a run fails; unset: the other runs continue"},
    {"retry-failed", "Sweep", "", "", "also resume runs that failed"},
    {"dry-run", "Output", "", "", "print each run, its result so far and its options; start nothing"},
    {"json", "Output", "", "", "print the results as one JSON object"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

struct Request {
  Options options;
  fs::path config;
};

// CONFIG.json stands first or last.
Request read_request(const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.arguments;
  std::vector<std::string> files;
  if (!arguments.empty() && !arguments.front().starts_with("-")) {
    files.push_back(arguments.front());
    arguments.erase(arguments.begin());
  }
  ParsedCommand line = resolve_command("dtrain sweep", kOptions, arguments, invocation.environment);
  files.insert(files.end(), line.rest.begin(), line.rest.end());
  if (line.options.has("help")) return {std::move(line.options), {}};
  if (files.size() != 1)
    throw UsageError(fmt::format("dtrain sweep: expected one CONFIG.json, got {}",
                                 files.empty() ? "none" : "also '" + files[1] + "'"));
  return {std::move(line.options), files.front()};
}

fs::path folder_of(const Request& request) {
  if (request.options.has("sweep-dir")) return request.options.text("sweep-dir");
  return fs::path("sweeps") / request.config.stem();
}

// The launcher is in the same folder as this program.
std::string launcher() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = self.parent_path() / "dtrain-launch";
  if (error || ::access(beside.c_str(), X_OK) != 0)
    throw UsageError(
        fmt::format("dtrain sweep: expected dtrain-launch at {}, there is none", beside.string()));
  return beside;
}

std::vector<std::string_view> train_option_names() {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : task_options()) names.push_back(spec.name);
  for (const OptionSpec& spec : train_options()) names.push_back(spec.name);
  return names;
}

/// The metric that results are sorted by must be one that a task of `dtrain train` gives.
void check_metric(const std::string& metric, const std::vector<std::string>& arguments,
                  const Environment& environment) {
  const auto task = task_of(resolve_training(train_program(), arguments, environment));
  std::vector<std::string> names{"loss"};
  for (const auto& [name, value] : task->evaluation(std::vector<double>(task->sum_count(), 1), 1).metrics)
    names.push_back(name);
  if (metric.empty() || std::find(names.begin(), names.end(), metric) != names.end()) return;
  throw UsageError(fmt::format("metric: expected one of {}, which this run can report, got {}",
                               fmt::join(names, ", "), metric));
}

void check(const SweepConfig& config, const std::vector<Run>& runs, const std::string& metric,
           const Environment& environment) {
  if (!config.program.empty())
    return check_runs(config, runs, {}, sweep::check_by_asking(config.program), environment);
  const auto train = [&](const std::vector<std::string>& arguments, const Environment& placed) {
    check_training(train_program(), arguments, placed);
    check_metric(metric, arguments, placed);
  };
  check_runs(config, runs, train_option_names(), train, environment);
}

// Whether any run may compute on a GPU.
bool may_use_gpus(const std::vector<Run>& runs) {
  const auto on_cpu = [](const Run& run) {
    return std::any_of(run.options.begin(), run.options.end(), [](const auto& option) {
      return (option.first == "device" || option.first == "devices") && option.second.starts_with("cpu");
    });
  };
  return !std::all_of(runs.begin(), runs.end(), on_cpu);
}

void print_plan(const SweepFolder& folder, const std::vector<Run>& runs) {
  for (const sweep::RunResult& result : sweep::read_results(folder, runs)) {
    fmt::print("{} ({})\n ", result.run.name, name_of(result.status));
    for (const std::string& word : sweep::arguments_of(result.run)) fmt::print(" {}", word);
    fmt::print("\n");
  }
}

void print_results(const SweepFolder& folder, const std::vector<Run>& runs, const std::string& asked,
                   bool json) {
  std::vector<sweep::RunResult> results = sweep::read_results(folder, runs);
  const std::string metric = sweep::metric_of(asked, results);
  sweep::sort_results(results, metric);
  const std::string text = sweep::results_json(folder, results, metric);
  replace_file(folder.results(), text);
  fmt::print("{}", json ? text : sweep::results_table(results, metric));
  if (!json) fmt::print("compare them: dtrain report {}/runs/*\n", folder.path().string());
}

void forget_failures(const SweepFolder& folder, const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (const auto end = folder.end_of(run); end && !end->finished) folder.forget_end(run);
  }
}

ExitCode code_of(const SweepEnd& end) {
  if (end.signal) return ExitCode::requeue;
  if (end.failed > 0) return ExitCode::failure;
  return end.unfinished > 0 ? ExitCode::requeue : ExitCode::ok;
}

ExitCode run(const Request& request, const Environment& environment) {
  const Options& options = request.options;
  const SweepConfig config = sweep::read_config(request.config);
  const std::vector<Run> runs = sweep::make_runs(config);
  const std::string metric = options.has("metric") ? options.text("metric") : config.metric;
  const auto jobs = options.has("jobs") ? static_cast<int>(options.integer("jobs", 1, kMostJobs)) : 0;
  const sweep::RunnerOptions how{
      .launcher = launcher(),
      .program = config.program.empty() ? std::vector<std::string>{"dtrain", "train"}
                                        : std::vector<std::string>{config.program},
      .workers = config.workers,
      .max_restarts = static_cast<int>(options.integer("max-restarts", 0, INT32_MAX)),
      .stop_on_failure = options.enabled("stop-on-failure"),
      .metric = metric,
      .environment = environment};
  const auto places = make_places(sweep::read_machine(environment), may_use_gpus(runs), jobs, config.workers);
  SweepFolder folder(fs::absolute(folder_of(request)).lexically_normal());
  folder.check(config, runs);
  check(config, runs, metric, environment);
  if (options.enabled("dry-run")) {
    print_plan(folder, runs);
    return ExitCode::ok;
  }
  FdLog log(STDERR_FILENO, "dtrain sweep", LogLevel::info);
  folder.open(config, runs, log);
  if (options.enabled("retry-failed")) forget_failures(folder, runs);
  SweepEnd end;
  {
    sweep::Show show(STDERR_FILENO, environment, runs.size());
    end = sweep::Runner(folder, runs, places, how, show).work();
  }
  print_results(folder, runs, metric, options.enabled("json"));
  if (!end.wrong_metric.empty())
    throw UsageError(fmt::format("{}; start again with another --metric to resume", end.wrong_metric));
  return code_of(end);
}

}  // namespace

ExitCode run_sweep(const Invocation& invocation) {
  const Request request = read_request(invocation);
  if (const auto help = asked_help(request.options, kUsage, kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  return run(request, invocation.environment);
}

}  // namespace dtrain
