#include "worker/sweep/checks.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "worker/sweep/jobs.h"

namespace dtrain::sweep {
namespace {

constexpr std::string_view kOwn[] = {"run-dir", "resume", "config", "print-config", "help"};
constexpr std::string_view kProgram = "dtrain train";

void check_names(const SweepConfig& config, const std::vector<std::string_view>& known) {
  for (const OptionChoice& option : config.options) {
    if (std::find(std::begin(kOwn), std::end(kOwn), option.name) != std::end(kOwn))
      throw UsageError(fmt::format(
          "{}: options.{}: expected an option of the training, got one that the sweep sets for each "
          "run",
          config.file, option.name));
    if (known.empty() || std::find(known.begin(), known.end(), option.name) != known.end()) continue;
    const auto close = closest_word(option.name, known);
    throw UsageError(fmt::format("{}: options.{}: {} has no option of that name{}", config.file, option.name,
                                 kProgram, close ? fmt::format("; did you mean \"{}\"?", *close) : ""));
  }
}

// As a worker of the job would find it, so that what depends on how many there are is checked too.
Environment placed(Environment environment, int workers) {
  for (const char* name : {"RANK", "LOCAL_RANK"}) environment[name] = std::to_string(0);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) environment[name] = std::to_string(workers);
  return environment;
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of(" \n\r") + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

Check check_by_asking(std::string program) {
  return [program = std::move(program)](const std::vector<std::string>& arguments,
                                        const Environment& environment) {
    std::vector<std::string> command{program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.emplace_back("--print-config");
    const Finished asked = run_to_end(command, environment);
    if (asked.status == 0) return;
    std::string said = last_line(asked.output);
    if (said.empty())
      said = program + " --print-config: expected exit code 0, got " + std::to_string(asked.status);
    throw UsageError(said);
  };
}

void check_runs(const SweepConfig& config, const std::vector<Run>& runs,
                const std::vector<std::string_view>& known, const Check& check,
                const Environment& environment) {
  check_names(config, known);
  const Environment worker = placed(environment, config.workers);
  for (const Run& run : runs) {
    try {
      check(arguments_of(run), worker);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: run {}: {}", config.file, run.name, error.what()));
    }
  }
}

}  // namespace dtrain::sweep
