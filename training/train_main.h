// A whole training program: what `dtrain train` is, for any task. The programs that dtrain-launch, mpirun and
// srun start many times are made of this.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "training/options/presets.h"
#include "training/task.h"

namespace dtrain {

/// What tells one training program from another.
struct TrainProgram {
  std::string name = {};                     ///< "dtrain train", for messages and the help text
  std::span<const OptionSpec> options = {};  ///< the program's own, shown before those that all have
  std::function<std::shared_ptr<const Task>(const Options& options)> make_task;
  std::span<const Preset> presets = {};  ///< that --recipe knows
  std::string_view examples = {};        ///< command lines for --help, of at most 78 columns
  std::string_view common = {};          ///< the own options that --help shows, "model, width"; empty: all
};

/// Trains as one worker of the job that `environment` tells of, or alone. `arguments` come after the
/// program's name. Throws every kind of Error; what a user should read of it is in the message.
ExitCode run_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                      const Environment& environment);

/// The values of the program's options and of those that all have, by `arguments`, `environment`, a
/// configuration file and a recipe. Throws UsageError.
Options resolve_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                         const Environment& environment);

/// Checks `arguments` as run_training() does before anything starts, for a worker of the job that
/// `environment` tells of: unknown options, values, what does not go together. Throws UsageError.
void check_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                    const Environment& environment);

/// A program that trains `task`, for main(): with every option of `dtrain train`, its exit codes and its
/// messages. Where its first argument is a word (predict, export, convert), it uses a run that it trained, as
/// `dtrain predict` does. `task` is borrowed.
///
///     int main(int argc, char** argv) { return dtrain::train_main(argc, argv, MyTask()); }
int train_main(int argc, char** argv, const Task& task);

/// The same for a program with options of its own, which stand before the others in --help, among the run's
/// settings, and in what a checkpoint must agree with. `program.name` is empty: as it was started.
///
///     constexpr dtrain::OptionSpec kOptions[] = {{"hidden", "Network", "N", "64", "features in between"}};
///     std::shared_ptr<const dtrain::Task> make(const dtrain::Options& options) {
///       return std::make_shared<MyTask>(options.integer("hidden", 1, 4096));
///     }
///     int main(int argc, char** argv) {
///       return dtrain::train_main(argc, argv, {.options = kOptions, .make_task = make});
///     }
int train_main(int argc, char** argv, TrainProgram program);

/// Runs `body` for main(): errors become one line on standard error, with the rank of this worker in front,
/// and the exit code. `program` is what a line begins with. As many files may be open as the hard limit lets,
/// up to 65,536: programs that this one starts have that limit, too.
int run_main(const std::string& program, const std::function<ExitCode()>& body);

}  // namespace dtrain
