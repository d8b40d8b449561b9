// The option table.
#include "launcher/plan/flags.h"

namespace dtrain::launcher {
namespace {

using namespace option_rows;

constexpr OptionSpec kOptions[] = {
#define DTRAIN_OPTION(values, ...) row(values, Agreement::job, {__VA_ARGS__}),
#include "launcher/plan/flags.def"
};

constexpr std::string_view kUsage =
    "usage: dtrain-launch [OPTIONS] [PROGRAM [ITS ARGUMENTS]]\n"
    "       dtrain-launch status|stop|save|stacks [JOB]\n\n"
    "Starts one worker per GPU (or CPU slot) and supervises them until all exit.\n\n"
    "  status     show a running job: steps, rate, and each worker of this node\n"
    "  stop       end a running job as SIGTERM does; dtrain programs save first\n"
    "  save       ask the workers of a running job for a checkpoint\n"
    "  stacks     print what the workers of this node are doing, with their stacks\n\n"
    "PROGRAM is the built-in dtrain (when left out: dtrain train), a .py file, a\n"
    "module with -m, or any executable. Everything from PROGRAM on belongs to it.\n"
    "Options can be spelled with dashes or underscores, set as DTRAIN_<OPTION> in\n"
    "the environment, or put in the file given by --config; the command line wins\n"
    "over the environment, and the environment over the file.\n\n"
    "Examples:\n"
    "  dtrain-launch --nproc-per-node=2 dtrain train --model lenet --epochs 10\n"
    "  dtrain-launch --nproc-per-node=auto train.py --its --flags\n"
    "  srun --ntasks-per-node=1 dtrain-launch --nproc-per-node=4 dtrain train";

/// What most jobs need.
constexpr std::string_view kCommon =
    "nproc-per-node, standalone, nnodes, hosts, node-rank, master-addr, master-port, token-file, log-dir, "
    "max-restarts, "
    "on-hang, config, explain, dry-run, print-completion, version, help, help-all";

}  // namespace

std::string completion_script(const Options& options) {
  const std::string& shell = options.choice("print-completion", {"bash", "zsh", "tcsh"});
  std::string words;
  for (const OptionSpec& spec : kOptions) {
    // tcsh completes what follows the dashes, the others whole words.
    words.append(words.empty() ? "" : " ").append(shell == "tcsh" ? "" : "--").append(spec.name);
  }
  if (shell == "tcsh") return "complete dtrain-launch 'c/--/(" + words + ")/'\n";
  const std::string bash = "complete -o default -W '" + words + "' dtrain-launch\n";
  return shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" + bash : bash;
}

std::span<const OptionSpec> launch_options() noexcept { return kOptions; }

std::optional<std::string> asked_help(const Options& options) {
  return dtrain::asked_help(options, kUsage, kOptions, kCommon);
}

}  // namespace dtrain::launcher
