// `dtrain bench`: picks what is measured.
#include <fmt/format.h>

#include "worker/commands.h"

namespace dtrain {
namespace {

constexpr std::string_view kUsage =
    "usage: dtrain bench WHAT [options]\n\n"
    "  allreduce  time and bandwidth of all_reduce by size, with checked results\n"
    "  predict    what all_reduce will take on more nodes, by a model of the links\n"
    "  step       where a training step's time goes; how much communication is hidden\n"
    "\nallreduce and step run alone or as workers of dtrain-launch, mpirun or srun.\n"
    "`dtrain bench WHAT --help` lists the options.\n";

}  // namespace

ExitCode run_bench(const Invocation& invocation) {
  const std::string what = invocation.arguments.empty() ? "" : invocation.arguments.front();
  if (what == "--help" || what == "-h" || what == "help") {
    fmt::print("{}", kUsage);
    return ExitCode::ok;
  }
  const Invocation rest{{invocation.arguments.begin() + (what.empty() ? 0 : 1), invocation.arguments.end()},
                        invocation.environment};
  if (what == "allreduce") return run_bench_allreduce(rest);
  if (what == "predict") return run_bench_predict(rest);
  if (what == "step") return run_bench_step(rest);
  throw UsageError(
      fmt::format("dtrain bench: expected allreduce, predict or step, got {} (`dtrain bench --help`)",
                  what.empty() ? "nothing" : "'" + what + "'"));
}

}  // namespace dtrain
