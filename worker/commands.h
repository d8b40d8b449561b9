// The sub-commands of `dtrain`. Each takes the arguments after its name and returns the exit code; errors are
// thrown.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "training/task.h"
#include "training/train_main.h"

namespace dtrain {

/// What every command is given.
struct Invocation {
  std::vector<std::string> arguments;  ///< after the command's name
  Environment environment;
};

ExitCode run_train(const Invocation& invocation);
ExitCode run_eval(const Invocation& invocation);
ExitCode run_sampler(const Invocation& invocation);
ExitCode run_data(const Invocation& invocation);
ExitCode run_doctor(const Invocation& invocation);
ExitCode run_runs(const Invocation& invocation);
ExitCode run_report(const Invocation& invocation);
ExitCode run_sweep(const Invocation& invocation);
ExitCode run_bench(const Invocation& invocation);
ExitCode run_predict(const Invocation& invocation);
ExitCode run_export(const Invocation& invocation);
ExitCode run_convert(const Invocation& invocation);
ExitCode run_show(const Invocation& invocation);
ExitCode run_generate(const Invocation& invocation);
ExitCode run_tokenize(const Invocation& invocation);
ExitCode run_completion(const Invocation& invocation);
/// The options that say what `dtrain train` and `dtrain bench step` learn, and the task they mean.
std::span<const OptionSpec> task_options();
std::shared_ptr<const Task> task_of(const Options& options);
/// `dtrain train`.
TrainProgram train_program();
/// `dtrain runs export`: arguments after that word.
ExitCode run_runs_export(const Invocation& invocation);
/// What run_bench() picks from; arguments after that word.
ExitCode run_bench_allreduce(const Invocation& invocation);
ExitCode run_bench_predict(const Invocation& invocation);
ExitCode run_bench_step(const Invocation& invocation);

}  // namespace dtrain
