// `dtrain`: picks the command.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "training/train_main.h"
#include "worker/build.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

struct Command {
  std::string_view name;
  std::string_view help;
  ExitCode (*run)(const Invocation&);
  bool computes = false;  ///< with several threads
};

constexpr Command kCommands[] = {
    {"train", "train a built-in model, in one process or as a worker of a job", run_train, true},
    {"eval", "evaluate a checkpoint on the test set", run_eval, true},
    {"sampler", "print the sample indices that a rank gets in an epoch", run_sampler},
    {"data", "check, describe and pack data sets", run_data},
    {"doctor", "check this machine and report what is wrong and how to fix it", run_doctor},
    {"bench", "measure all_reduce, or where a training step's time goes", run_bench, true},
    {"sweep", "train with many combinations of options, several runs at a time", run_sweep},
    {"runs", "list runs and what came of them", run_runs},
    {"report", "plot one run, or compare several, in a self-contained HTML page", run_report},
    {"predict", "apply a trained network to samples in a file", run_predict, true},
    {"show", "print a network, layer by layer", run_show},
    {"export", "write a trained network as ONNX or in Hugging Face's format", run_export},
    {"generate", "continue a text with a trained language model", run_generate, true},
    {"tokenize", "tokenize texts into shards, or train a tokenizer", run_tokenize},
    {"completion", "print a script that completes words in bash, zsh or fish", run_completion},
    {"convert", "convert safetensors weights to or from PyTorch's names", run_convert},
};

std::string usage() {
  std::string text = "usage: dtrain COMMAND [options]\n\n";
  for (const Command& command : kCommands) text += fmt::format("  {:<11} {}\n", command.name, command.help);
  return text +
         "\n`dtrain COMMAND --help` lists a command's options.\n"
         "`dtrain --version` prints the version.\n";
}

/// OpenMP reads how its threads wait before main() begins, so that the program has to start again to say it:
/// threads that spin take a busy machine's cores from those that compute. A launcher says it from the outset.
/// Returns where nothing needs to be said.
void start_with_patient_threads(std::span<char*> argv) {
  for (const char* const said : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
    if (std::getenv(said) != nullptr) return;
  }
  std::error_code unknown;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown && ::setenv("OMP_WAIT_POLICY", "passive", 0) == 0) ::execv(program.c_str(), argv.data());
}

ExitCode dispatch(std::span<char*> argv) {
  const std::string_view name = argv.size() > 1 ? argv[1] : "";
  if (name == "--version") {
    fmt::print("{}\n", build_description());
    return ExitCode::ok;
  }
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", usage());
    return ExitCode::ok;
  }
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    names.push_back(command.name);
    if (command.name == name && command.computes) start_with_patient_threads(argv);
    if (command.name == name) return command.run({{argv.begin() + 2, argv.end()}, current_environment()});
  }
  if (name.empty()) throw UsageError("expected a command, got none (`dtrain --help` lists them)");
  const auto close = closest_word(name, names);
  throw UsageError(fmt::format("unknown command '{}'{} (`dtrain --help` lists them)", name,
                               close ? fmt::format("; did you mean '{}'?", *close) : ""));
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  return dtrain::run_main("dtrain", [&] { return dtrain::dispatch({argv, static_cast<std::size_t>(argc)}); });
}
