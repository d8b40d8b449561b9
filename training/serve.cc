#include "training/serve.h"

#include <fmt/format.h>
#include <unistd.h>

#include "parallel/server/parameter_server.h"
#include "runtime/base/files/worker_status.h"
#include "training/start/peers.h"

namespace dtrain {
namespace {

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::unique_ptr<Updater> updater_of(const TrainConfig& config) {
  const auto make = [rule = config.optimizer](const NamedTensors& parameters) {
    return make_optimizer(rule, parameters, {.vectors = names_of_vectors(parameters)});
  };
  return make_optimizer_updater(make, config.optimizer.limits);
}

}  // namespace

ExitCode serve(const TrainConfig& config, const ServerRole& role, const Placement& placement,
               const Environment& environment, StopSignal& stop_signal, Log& log) {
  const Deadline deadline = Deadline::after(config.connect_timeout);
  WorkerRendezvous rendezvous(placement, config.backend, environment, config.connect_timeout, log, role);
  const bool async = config.update == ServerUpdate::async;
  // Of asynchronous workers any may go but the first, which writes the run's records and checkpoints.
  const ServerRules rules{.workers = role.workers,
                          .update = config.update,
                          .max_staleness = config.max_staleness,
                          .recorder = async ? 0 : -1};
  ParameterServer server(rules, updater_of(config),
                         {.number = *role.server,
                          .host = rendezvous.own_address(environment, deadline),
                          .name = host_name(),
                          .token = rendezvous.token(),
                          .protection = find_protection(environment),
                          .log = &log});
  rendezvous.publish(server.address(), deadline);
  const auto group = rendezvous.take_group(deadline);
  if (rendezvous.store() != nullptr) rendezvous.leave();  // what it keeps is enough; a worker may host it
  log.write(LogLevel::debug, fmt::format("parameter server {} of {} for {} workers", *role.server,
                                         role.servers, role.workers));
  StatusReporter status(StatusSlot::from(environment));
  status.update([](WorkerStatus& now) { now.state = WorkerState::joined; });
  stop_signal.defer();
  server.run(config.connect_timeout, [&] { return stop_signal.received() != 0; });
  return ExitCode::ok;
}

}  // namespace dtrain
