#include "training/worker.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/thread_ranks.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/timed_device.h"
#include "training/loop/trainer.h"
#include "training/make_strategy.h"
#include "training/start/first_rank_error.h"
#include "training/start/same_options.h"
#include "training/start/threads.h"
#include "training/tensor_parallel_task.h"

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

/// A launcher that has started servers lets the others train on without a worker that is killed, from now on.
void tell_of_meeting(const Environment& environment) {
  if (const std::string* mark = find_variable(environment, "DTRAIN_MET_FILE"))
    std::ofstream(*mark).flush();  // where it cannot be made, the job ends with this worker
}

/// Runs `body`, which sets up what this rank trains with: of what is wrong there its peers are to hear too,
/// and users once.
template <class Body>
auto checked(const Placement& place, Communicator& workers, Body body) {
  try {
    return first_rank_error(place, body);
  } catch (const UsageError& error) {
    workers.abort(error.what());
    throw;
  }
}

/// Peers that wait for this rank are to hear why it ends, not to find out that it has.
ExitCode run_and_tell(Trainer& trainer, Communicator& communicator, StopSignal& stop,
                      const StepClock& clock) {
  stop.defer();
  try {
    return trainer.run();
  } catch (const PeerError& error) {
    // The same signal has found the others still on their way to the first step.
    if (stop.received() != 0 && clock.steps() == 0) return ExitCode::requeue;
    // Those of the group that ended know; others wait in the job's other groups.
    communicator.abort(error.what());
    throw;
  } catch (const std::exception& error) {
    communicator.abort(error.what());
    throw;
  }
}

/// What a worker computes and records with, and its place among those of its node.
struct WorkerContext {
  WorkerContext(const TrainConfig& config, const Placement& placement, const Environment& environment,
                WorkerLog& to)
      : place(placement),
        rank(*placement.rank),
        local_rank(*placement.local_rank),
        local_size(placement.local_world_size.value_or(1)),
        log(to),
        tracer(config.trace, rank, to),
        status(config.thread_workers > 1 && rank > 0 ? StatusSlot() : StatusSlot::from(environment)),
        devices(first_rank_error(place, [&] { return make_devices(config, local_rank, local_size); })) {
    devices.replace_main(traced(devices.main(), tracer));
  }

  const Placement place;
  const int rank, local_rank, local_size;
  WorkerLog& log;
  Tracer tracer;
  StatusReporter status;  ///< of threads, the first one's is the process'
  WorkerDevices devices;
};

/// `servers` may be null.
ExitCode train_among(const WorkerJob& job, WorkerContext& own, Communicator& workers,
                     KeyValueStore* servers) {
  const TrainConfig& config = job.config;
  own.status.update([](WorkerStatus& status) { status.state = WorkerState::joined; });
  check_same_options(job.options, workers, Deadline::after(config.connect_timeout));
  StepClock clock;
  const auto mesh =
      checked(own.place, workers, [&] { return make_mesh(config, workers, own.local_rank, own.local_size); });
  const StrategyContext strategy_context{
      workers, own.devices.home, config.collective_timeout, {&clock, own.tracer.spans()}};
  const auto strategy = checked(own.place, workers, [&] {
    return make_strategy(config, strategy_context, own.devices, mesh.get(), servers);
  });
  std::optional<TensorParallelTask> tensor_parallel;
  if (const auto tp_group = tensor_parallel_group(config, mesh.get()))
    tensor_parallel.emplace(job.task, *tp_group);
  const Task& learned = tensor_parallel ? static_cast<const Task&>(*tensor_parallel) : job.task;
  const TrainerEnvironment environment{learned,
                                       *strategy,
                                       workers,
                                       own.devices.main(),
                                       job.options,
                                       job.environment,
                                       job.stop_signal,
                                       own.log,
                                       own.tracer,
                                       clock,
                                       WritePermit::from(job.environment),
                                       mesh && !config.mesh.empty() ? &mesh->mesh.group("dp") : nullptr,
                                       &own.status,
                                       job.straggler_window};
  Trainer trainer = checked(own.place, workers, [&] { return Trainer(config, environment); });
  const auto tell = [&](const std::string& text) {
    if (own.rank == 0 && !text.empty()) fmt::print("{}\n", text);
  };
  tell(strategy->report(0).plan);
  const ExitCode code = run_and_tell(trainer, workers, job.stop_signal, clock);
  if (config.profile) tell(strategy->report(clock.steps()).stats);
  return code;
}

/// A worker that is a thread.
struct ThreadWorker {
  ThreadWorker(const TrainConfig& config, const Placement& placement, const Environment& environment)
      : log(worker_name(*placement.rank, config.thread_workers)),
        context(config, placement, environment, log) {}

  WorkerLog log;
  WorkerContext context;
  ExitCode code = ExitCode::ok;
};

}  // namespace

int worker_count(const Options& options, const ServerRole& role) {
  int threads = 1;
  options.read("thread-workers", threads);
  if (threads > 1 && role.workers + role.servers > 1) {
    options.refuse("thread-workers", fmt::format("1 in a job of {} processes, each of which is a worker",
                                                 role.workers + role.servers));
  }
  return threads > 1 ? threads : role.workers;
}

std::string worker_name(int rank, int workers) {
  return workers == 1 ? "dtrain" : fmt::format("dtrain: rank {}", rank);
}

ExitCode run_worker(const WorkerJob& job, const Placement& placement, const ServerRole& role,
                    WorkerLog& log) {
  const TrainConfig& config = job.config;
  WorkerContext context(config, placement, job.environment, log);
  const auto& main = context.devices.main();
  std::optional<cuda::ModuleNotices> notices;  // each worker's are the same
  if (main->type() == DeviceType::cuda && context.rank == 0)
    notices.emplace([&log](const std::string& text) { log.write(LogLevel::warning, text); });
  Peers peers(placement, config.backend, job.environment, config.connect_timeout, log,
              context.devices.home.get(), context.tracer.spans(), role, config.update, config.all_reduce);
  tell_of_meeting(job.environment);
  const ExitCode code = train_among(job, context, peers.communicator(), peers.servers());
  peers.leave();
  return code;
}

ExitCode run_thread_workers(const WorkerJob& job, const Placement& placement, WorkerLog& log) {
  const TrainConfig& config = job.config;
  std::vector<Placement> places(static_cast<std::size_t>(config.thread_workers), placement);
  std::vector<std::unique_ptr<ThreadWorker>> workers;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    places[rank].rank = places[rank].local_rank = static_cast<int>(rank);
    places[rank].world_size = places[rank].local_world_size = config.thread_workers;
    workers.push_back(std::make_unique<ThreadWorker>(config, places[rank], job.environment));
  }
  const auto spans_of = [&](int rank) {
    return workers[static_cast<std::size_t>(rank)]->context.tracer.spans();
  };
  run_thread_ranks(config.thread_workers,
                   {.timeout = config.connect_timeout, .all_reduce = config.all_reduce, .spans = spans_of},
                   log, [&](Communicator& ranks) {
                     const auto rank = static_cast<std::size_t>(ranks.rank());
                     ThreadWorker& worker = *workers[rank];
                     limit_threads(places[rank], job.environment, config.threads,
                                   static_cast<int>(config.devices.size()));
                     try {
                       worker.code = train_among(job, worker.context, ranks, nullptr);
                     } catch (const Error& error) {
                       worker.log.note(LogLevel::error, error.what());
                       throw;
                     }
                   });
  return workers.front()->code;
}

}  // namespace dtrain
