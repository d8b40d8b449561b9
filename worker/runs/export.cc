// `dtrain runs export`: a run's parameters, curves and files as MLflow and W&B have theirs, without either
// and without network.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/metrics/export/exported_run.h"
#include "training/use/commands.h"
#include "training/use/saved_run.h"
#include "worker/build.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"to", "Export", "TOOL", "", "mlflow or wandb", 0, "", "", "", option_rows::one_of("mlflow, wandb")},
    {"output", "Export", "DIR", ".", "where mlruns/ or wandb/ is made, or added to where there is one"},
    {"project", "Export", "NAME", "dtrain", "MLflow's experiment, W&B's project"},
    {"help", "Export", "", "", "print this text"},
};
constexpr const char* kUsage =
    "usage: dtrain runs export [RUN...] --to mlflow|wandb [options]\n\n"
    "Writes runs (the newest in runs/ where none is named) as files that other\n"
    "trackers read: options, curves, config.json, summary.json and report.html.\n\n"
    "Examples:\n"
    "  dtrain runs export runs/first --to mlflow && mlflow migrate-filestore \\\n"
    "    --source mlruns --target sqlite:///mlflow.db && mlflow ui\n"
    "  dtrain runs export runs/* --to wandb --project mnist && wandb sync wandb/*";
// clang-format on

}  // namespace

ExitCode run_runs_export(const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.arguments;
  std::vector<std::string> runs = take_words(arguments, 100'000);
  const Options options = resolve_options("dtrain runs export", kOptions, arguments, invocation.environment);
  if (const auto help = asked_help(options, kUsage, kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  options.check(kOptions);
  if (!options.has("to")) options.refuse("to", "mlflow or wandb");
  FdLog notes(STDERR_FILENO, "dtrain runs export", LogLevel::info);
  if (runs.empty()) runs.push_back(run_or_newest("", "dtrain runs export runs/first --to mlflow", notes));
  const fs::path output = options.text("output");
  for (const std::string& run : runs) {
    const ExportedRun exported = read_exported_run(RunDirectory(run), "dtrain " + build_version());
    const fs::path written = options.text("to") == "mlflow"
                                 ? write_mlflow(exported, output / "mlruns", options.text("project"))
                                 : write_wandb(exported, output, options.text("project"));
    fmt::print("{}\n", written.string());
  }
  return ExitCode::ok;
}

}  // namespace dtrain
