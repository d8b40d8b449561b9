// `dtrain report RUN_DIR`: one self-contained page about a run.
#include <fmt/format.h>

#include "runtime/metrics/report.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

constexpr OptionSpec kOptions[] = {{"run-dir", "Report", "DIR", "", "folder of the run"},
                                   {"help", "Report", "", "", "this text"}};

}  // namespace

ExitCode run_report(const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.arguments;
  if (arguments.size() == 1 && !arguments[0].starts_with("-")) arguments = {"--run-dir", arguments[0]};
  const Options options = resolve_options("dtrain report", kOptions, arguments, invocation.environment);
  if (const auto help = asked_help(options, "usage: dtrain report RUN_DIR", kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const RunDirectory run(options.text("run-dir"));
  write_report(run);
  fmt::print("{}\n", run.report().string());
  return ExitCode::ok;
}

}  // namespace dtrain
