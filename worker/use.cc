// `dtrain predict`, `export`, `convert` and `show`: what any training program does with its runs, for the
// built-in tasks.
#include "training/use/commands.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

TrainProgram program() { return {"dtrain", task_options(), task_of}; }

}  // namespace

ExitCode run_predict(const Invocation& invocation) {
  return predict_command(program(), invocation.arguments, invocation.environment);
}

ExitCode run_export(const Invocation& invocation) {
  return export_command(program(), invocation.arguments, invocation.environment);
}

ExitCode run_convert(const Invocation& invocation) {
  return convert_command(program(), invocation.arguments, invocation.environment);
}

ExitCode run_show(const Invocation& invocation) {
  return show_command(program(), invocation.arguments, invocation.environment);
}

}  // namespace dtrain
