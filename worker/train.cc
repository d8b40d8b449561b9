// `dtrain train`: one worker of a job that learns one of the built-in tasks.
#include "models/tasks/built_in.h"
#include "training/train_main.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kTaskOptions[] = {
    {"model", "What to train", "NAME", "lenet", "linear, mlp, lenet, resnet18 or resnet50"},
    {"task", "What to train", "NAME", "classification", "classification (cross entropy) or regression (mean squared error)"},
};
// clang-format on

}  // namespace

std::span<const OptionSpec> task_options() { return kTaskOptions; }

std::shared_ptr<const Task> task_of(const Options& options) {
  return make_task(options.text("task"), options.text("model"));
}

ExitCode run_train(const Invocation& invocation) {
  return run_training({"dtrain train", task_options(), task_of}, invocation.arguments,
                      invocation.environment);
}

}  // namespace dtrain
