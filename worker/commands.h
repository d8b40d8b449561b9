// The sub-commands of `dtrain`. Each takes the arguments after its name and returns the exit code; errors are
// thrown.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {

/// What every command is given.
struct Invocation {
  std::vector<std::string> arguments;  ///< after the command's name
  Environment environment;
};

ExitCode run_train(const Invocation& invocation);
ExitCode run_eval(const Invocation& invocation);
ExitCode run_sampler(const Invocation& invocation);
ExitCode run_doctor(const Invocation& invocation);
ExitCode run_report(const Invocation& invocation);
ExitCode run_bench(const Invocation& invocation);
/// What run_bench() picks from; arguments after that word.
ExitCode run_bench_allreduce(const Invocation& invocation);
ExitCode run_bench_step(const Invocation& invocation);

}  // namespace dtrain
