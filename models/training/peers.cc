#include "models/training/peers.h"

#include <fmt/format.h>

#include "cluster/endpoint.h"
#include "cluster/token.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

constexpr std::uint16_t kDefaultPort = 29500;  // torchrun's
constexpr auto kLeaveTimeout = std::chrono::seconds(5);
constexpr std::string_view kStoreFdVariable = "DTRAIN_STORE_FD";

std::string text_or(const Environment& environment, std::string_view name, std::string otherwise) {
  const std::string* value = find_variable(environment, name);
  return value != nullptr ? *value : std::move(otherwise);
}

Endpoint store_endpoint(const Placement& placement) {
  if (!placement.master_addr) {
    throw UsageError(
        "MASTER_ADDR: expected the address where rank 0 can be reached, got none; start the workers with "
        "dtrain-launch, or set MASTER_ADDR and MASTER_PORT, or use --backend mpi under mpirun");
  }
  return {*placement.master_addr, placement.master_port.value_or(kDefaultPort)};
}

// The launcher hands rank 0 a socket that already listens, so that nobody can take the port in between.
Listener store_listener(const Environment& environment, const Endpoint& endpoint, const Deadline& deadline) {
  const std::string* inherited = find_variable(environment, kStoreFdVariable);
  if (inherited == nullptr) return listen_on(endpoint.host, endpoint.port, deadline);
  const auto fd = parse_integer(*inherited);
  if (!fd || *fd < 0)
    throw UsageError(
        fmt::format("{}: expected a descriptor's number, got '{}'", kStoreFdVariable, *inherited));
  return adopt_listener(UniqueFd(static_cast<int>(*fd)), kStoreFdVariable);
}

bool needs_store(std::string_view backend, const WorkerPlace& place) {
  if (place.world_size == 1 || backend == "mpi") return false;
  return backend == "gloo" || place.placement.system != "openmpi";
}

}  // namespace

WorkerPlace find_place(const Environment& environment) {
  WorkerPlace place;
  place.placement = detect(environment, this_machine());
  const bool alone = !place.placement.rank || !place.placement.world_size;
  if (alone) return place;
  place.rank = *place.placement.rank;
  place.world_size = *place.placement.world_size;
  place.local_rank = place.placement.local_rank.value_or(0);
  return place;
}

Peers::Peers(const WorkerPlace& place, std::string_view backend, const Environment& environment,
             Duration timeout, Log& log) {
  if (needs_store(backend, place)) meet_in_store(place, environment, timeout, log);
  Bootstrap bootstrap;
  bootstrap.rank = place.rank;
  bootstrap.size = place.world_size;
  bootstrap.store = store_.get();
  bootstrap.interface = text_or(environment, "GLOO_SOCKET_IFNAME", "");
  bootstrap.master = place.placement.master_addr.value_or("");
  bootstrap.timeout = timeout;
  communicator_ = make_communicator(place.world_size == 1 ? "self" : backend, bootstrap, log);
}

Peers::~Peers() = default;

void Peers::meet_in_store(const WorkerPlace& place, const Environment& environment, Duration timeout,
                          Log& log) {
  const Deadline deadline = Deadline::after(timeout);
  const Endpoint endpoint = store_endpoint(place.placement);
  const auto token = find_token(environment);
  const std::string job = text_or(environment, "TORCHELASTIC_RUN_ID", "");
  if (place.rank == 0) {
    StoreServerOptions options;
    options.token = token;
    options.job = job;
    options.log = &log;
    server_ =
        std::make_unique<StoreServer>(store_listener(environment, endpoint, deadline), std::move(options));
  }
  StoreClientOptions options;
  options.token = token;
  options.job = job;
  options.rank = place.rank;
  store_ = std::make_unique<StoreClient>(endpoint, std::move(options), deadline);
}

void Peers::leave() {
  communicator_.reset();
  store_.reset();
  if (server_) server_->wait_until_clients(0, Deadline::after(kLeaveTimeout));
}

}  // namespace dtrain
