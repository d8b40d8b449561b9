// `dtrain train`: one worker of a job.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/device/cuda/module.h"
#include "runtime/device/timed_device.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "training/trainer.h"
#include "worker/commands.h"

namespace dtrain {

namespace {

// The device that computes, with its kernels in the trace where they run when they are called: on the CPU.
// Those of a GPU would have to be waited for; there a profiler has the times.
std::shared_ptr<Device> traced(std::shared_ptr<Device> device, Tracer& tracer) {
  if (device->type() != DeviceType::cpu) {
    tracer.set_listener(cuda::module_profiler());
    return device;
  }
  return tracer.wanted() ? make_timed_device(std::move(device), *tracer.spans()) : device;
}

ExitCode train(const Invocation& invocation, const Options& options, const Recipe& recipe,
               const Placement& placement, const StopSignal& stop_signal, WorkerLog& log) {
  Tracer tracer(recipe.trace, *placement.rank, log);
  const auto device = traced(
      make_device(recipe.device, {.local_rank = *placement.local_rank, .tf32 = recipe.precision == "tf32"}),
      tracer);
  if (recipe.precision == "tf32" && device->type() == DeviceType::cpu)
    throw UsageError("--precision tf32: expected a GPU, got device " + device->name());
  Peers peers(placement, recipe.backend, invocation.environment, recipe.connect_timeout, log, device.get(),
              tracer.spans());
  ExitCode code = ExitCode::ok;
  {
    Trainer trainer(
        recipe, {peers.communicator(), device, options, invocation.environment, stop_signal, log, tracer});
    code = trainer.run();
  }
  peers.leave();
  return code;
}

}  // namespace

ExitCode run_train(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain train", train_options(), invocation.arguments, invocation.environment);
  if (options.enabled("help")) {
    fmt::print("{}",
               options_help(
                   "usage: dtrain train [options]   (alone, or as a worker of dtrain-launch, mpirun or srun)",
                   train_options()));
    return ExitCode::ok;
  }
  const Placement placement = find_placement(invocation.environment);
  const Recipe recipe = make_recipe(options, *placement.world_size);
  if (options.enabled("print-config")) {
    if (*placement.rank == 0) fmt::print("{}", options_table(options));
    return ExitCode::ok;
  }
  limit_threads(placement, invocation.environment);
  const StopSignal stop_signal;  // before any thread
  WorkerLog log(*placement.world_size == 1 ? "dtrain" : fmt::format("dtrain: rank {}", *placement.rank));
  try {
    return train(invocation, options, recipe, placement, stop_signal, log);
  } catch (const Error& error) {
    log.note(LogLevel::error, error.what());
    throw;
  }
}

}  // namespace dtrain
