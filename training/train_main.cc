#include "training/train_main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "cluster/detect/program_note.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/timed_device.h"
#include "training/divided_task.h"
#include "training/make_strategy.h"
#include "training/serve.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "training/trainer.h"
#include "training/use/commands.h"

DTRAIN_PROGRAM_NOTE()

namespace dtrain {
namespace {

// The device that computes, with its kernels in the trace where they run when they are called. Those of a
// device that runs ahead would have to be waited for; there a profiler has the times.
std::shared_ptr<Device> traced(std::shared_ptr<Device> device, Tracer& tracer) {
  if (device->runs_ahead()) {
    tracer.set_listener(cuda::module_profiler());
    return device;
  }
  return tracer.wanted() ? make_timed_device(std::move(device), *tracer.spans()) : device;
}

/// Peers that wait for this rank are to hear why it ends, not to find out that it has.
ExitCode run_and_tell(Trainer& trainer, Communicator& communicator) {
  try {
    return trainer.run();
  } catch (const PeerError&) {
    throw;  // they know
  } catch (const std::exception& error) {
    communicator.abort(error.what());
    throw;
  }
}

ExitCode train(const Task& task, const Environment& environment, const Options& options, const Recipe& recipe,
               const Placement& placement, const ServerRole& role, const StopSignal& stop_signal,
               WorkerLog& log) {
  Tracer tracer(recipe.trace, *placement.rank, log);
  const int local_size = placement.local_world_size.value_or(1);
  WorkerDevices devices = make_devices(recipe, *placement.local_rank, local_size);
  devices.replace_main(traced(devices.main(), tracer));
  std::optional<cuda::ModuleNotices> notices;  // each worker's are the same
  if (devices.main()->type() == DeviceType::cuda && *placement.rank == 0) {
    notices.emplace([&log](const std::string& text) { log.write(LogLevel::warning, text); });
  }
  Peers peers(placement, recipe.backend, environment, recipe.connect_timeout, log, devices.home.get(),
              tracer.spans(), role, recipe.update);
  StepClock clock;
  ExitCode code = ExitCode::ok;
  {
    const auto mesh = make_mesh(recipe, peers.communicator(), *placement.local_rank, local_size);
    const auto strategy = make_strategy(
        recipe, {peers.communicator(), devices.home, recipe.collective_timeout, {&clock, tracer.spans()}},
        devices, mesh.get(), peers.servers());
    std::optional<DividedTask> divided;
    if (const auto division = division_of(recipe, mesh.get())) divided.emplace(task, *division);
    const Task& learned = divided ? static_cast<const Task&>(*divided) : task;
    Trainer trainer(recipe, {learned, *strategy, peers.communicator(), devices.main(), options, environment,
                             stop_signal, log, tracer, clock, WritePermit::from(environment),
                             mesh && !recipe.mesh.empty() ? &mesh->mesh.group("dp") : nullptr});
    const auto tell = [&](const std::string& text) {
      if (*placement.rank == 0 && !text.empty()) fmt::print("{}\n", text);
    };
    tell(strategy->proposal());
    code = run_and_tell(trainer, peers.communicator());
    if (recipe.profile) tell(strategy->account(clock.steps()));
  }
  peers.leave();
  return code;
}

std::string name_of_process(const Placement& placement, const ServerRole& role) {
  if (role.server) return fmt::format("dtrain: server {}", *role.server);
  return role.workers == 1 ? "dtrain" : fmt::format("dtrain: rank {}", *placement.rank);
}

std::vector<OptionSpec> all_options(const TrainProgram& program) {
  std::vector<OptionSpec> all(program.options.begin(), program.options.end());
  all.insert(all.end(), train_options().begin(), train_options().end());
  return all;
}

// The rank is part of the line: every worker of a job may fail at once.
void report(const std::string& program, std::string_view message) {
  const char* rank = ::getenv("RANK");
  // Messages about a command's options begin with its full name already.
  if (message.starts_with(program + " ")) message.remove_prefix(program.size() + 1);
  const std::string line = rank != nullptr ? fmt::format("{}: rank {}: {}\n", program, rank, message)
                                           : fmt::format("{}: {}\n", program, message);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void check_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                    const Environment& environment) {
  const Options options = resolve_options(program.name, all_options(program), arguments, environment);
  const ServerRole role = find_server_role(options, find_placement(environment), environment);
  make_recipe(options, program.make_task(options)->name(), role.workers);
}

ExitCode run_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                      const Environment& environment) {
  const std::vector<OptionSpec> specs = all_options(program);
  const Options options = resolve_options(program.name, specs, arguments, environment);
  const std::string usage = fmt::format(
      "usage: {} [options]   (alone, or as a worker of dtrain-launch, mpirun or srun)", program.name);
  if (const auto help = asked_help(options, usage, specs)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  Placement placement = find_placement(environment);
  const ServerRole role = find_server_role(options, placement, environment);
  placement.world_size = role.workers;
  const std::shared_ptr<const Task> task = program.make_task(options);
  Recipe recipe = make_recipe(options, task->name(), role.workers);
  for (const OptionSpec& spec : program.options) {
    const std::string name(spec.name);
    if (options.has(name)) recipe.own[name] = options.text(name);
  }
  if (options.enabled("print-config")) {
    if (*placement.rank == 0 && !role.server) fmt::print("{}", options_table(options));
    return ExitCode::ok;
  }
  limit_threads(placement, environment, recipe.threads, static_cast<int>(recipe.devices.size()));
  const StopSignal stop_signal;  // before any thread
  WorkerLog log(name_of_process(placement, role));
  try {
    if (role.server) return serve(recipe, role, placement, environment, stop_signal, log);
    return train(*task, environment, options, recipe, placement, role, stop_signal, log);
  } catch (const Error& error) {
    log.note(LogLevel::error, error.what());
    throw;
  }
}

int run_main(const std::string& program, const std::function<ExitCode()>& body) {
  try {
    return static_cast<int>(body());
  } catch (const Error& error) {
    report(program, error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::bad_alloc&) {
    report(program, "out of memory; use a smaller batch");
    return static_cast<int>(ExitCode::system);
  } catch (const std::exception& error) {
    report(program, error.what());
    return static_cast<int>(ExitCode::failure);
  }
}

int train_main(int argc, char** argv, TrainProgram program) {
  if (program.name.empty()) program.name = std::filesystem::path(argc > 0 ? argv[0] : "program").filename();
  return run_main(program.name, [&] {
    const UseCommand* const command = argc > 1 ? find_use_command(argv[1]) : nullptr;
    if (command != nullptr) return command->run(program, {argv + 2, argv + argc}, current_environment());
    return run_training(program, {argv + std::min(argc, 1), argv + argc}, current_environment());
  });
}

int train_main(int argc, char** argv, const Task& task) {
  const auto borrow = [&](const Options&) {
    return std::shared_ptr<const Task>(std::shared_ptr<const Task>(), &task);
  };
  return train_main(argc, argv, TrainProgram{.name = {}, .options = {}, .make_task = borrow});
}

}  // namespace dtrain
