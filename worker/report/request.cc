#include "worker/report/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/metrics/report/page.h"
#include "runtime/metrics/run_directory.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"run-dir", "Report", "DIR", "", "folder of a run, in addition to the arguments; if neither is given: the newest in runs/"},
    {"output", "Report", "FILE", "", "page to write; unset: report.html in the run's folder, or for several runs comparison.html in the current folder"},
    {"watch", "Live", "", "", "write no file; serve the page during training to browsers on this machine, until Ctrl-C"},
    {"port", "Live", "P", "0", "with --watch: port on 127.0.0.1; 0: any free port"},
    {"help", "Report", "", "", "print this text"},
};
// clang-format on

fs::path newest_run_here() {
  fs::path newest = newest_run();
  if (newest.empty())
    throw UsageError(
        "expected the folder of a run, got none, and runs/ here has none; name what dtrain train wrote to "
        "(its --run-dir)");
  return newest;
}

void check_run(const fs::path& folder, bool watch) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError(
        fmt::format("{}: expected the folder of a run, {}; name what dtrain train wrote to (its --run-dir)",
                    folder.string(), fs::exists(folder, error) ? "got a file" : "there is none"));
  }
  const RunDirectory run(folder);
  if (fs::exists(run.metrics(), error) || (watch && fs::exists(run.config(), error))) return;
  throw UsageError(
      fmt::format("{}: expected the folder of a run, with a metrics.jsonl in it; it has none. Name what "
                  "dtrain train wrote to (its "
                  "--run-dir)",
                  folder.string()));
}

void check_runs(const std::vector<fs::path>& runs, bool watch) {
  std::vector<fs::path> seen;
  for (const fs::path& folder : runs) {
    check_run(folder, watch);
    const fs::path real = fs::canonical(folder);
    if (std::ranges::find(seen, real) != seen.end())
      throw UsageError(fmt::format("{}: expected each run once, got it twice", folder.string()));
    seen.push_back(real);
  }
}

/// Nobody's file is lost to a slip in the command line.
void check_output(const fs::path& output) {
  std::error_code error;
  if (!fs::exists(output, error)) return;
  std::string beginning(1024, '\0');
  std::ifstream file(output, std::ios::binary);
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (fs::is_regular_file(output, error) && beginning.find(kReportMark) != std::string::npos) return;
  throw UsageError(
      fmt::format("--output {}: expected a new file, or a page that dtrain report wrote; it is something "
                  "else. Nothing was written; "
                  "name another file",
                  output.string()));
}

}  // namespace

std::span<const OptionSpec> report_options() { return kOptions; }

SplitArguments split_report_arguments(const std::vector<std::string>& arguments) {
  SplitArguments split;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      split.folders.insert(split.folders.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                           arguments.end());
      break;
    }
    if (!argument.starts_with("-")) {
      split.folders.push_back(argument);
      continue;
    }
    split.options.push_back(argument);
    std::string name = argument.substr(std::min(argument.find_first_not_of('-'), argument.size()));
    std::ranges::replace(name, '_', '-');
    const auto spec = std::ranges::find(kOptions, name, &OptionSpec::name);
    const bool takes_next = spec != std::end(kOptions) && !spec->value_name.empty();
    if (takes_next && i + 1 < arguments.size()) split.options.push_back(arguments[++i]);
  }
  return split;
}

ReportRequest make_report_request(const Options& options, const std::vector<std::string>& folders) {
  ReportRequest request;
  request.runs.assign(folders.begin(), folders.end());
  if (options.has("run-dir")) request.runs.emplace_back(options.text("run-dir"));
  if (request.runs.empty()) request.runs.push_back(newest_run_here());
  request.watch = options.enabled("watch");
  request.port = static_cast<std::uint16_t>(options.integer("port", 0, UINT16_MAX));
  if (request.watch && options.has("output"))
    throw UsageError("--output: expected without --watch, which writes no file; leave one of them out");
  if (!request.watch && request.port != 0)
    throw UsageError("--port: expected with --watch; without it the page is a file, which needs no port");
  check_runs(request.runs, request.watch);
  if (request.watch) return request;
  if (options.has("output")) {
    request.output = options.text("output");
    check_output(request.output);
  } else if (request.runs.size() > 1) {
    request.output = "comparison.html";
    check_output(request.output);
  } else {
    request.output = RunDirectory(request.runs.front()).report();
  }
  return request;
}

}  // namespace dtrain
