#include "training/start/peers.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/detect/slurm_node.h"
#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "parallel/server/key_value_communicator.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

constexpr std::uint16_t kDefaultPort = 29500;  // torchrun's
constexpr auto kLeaveTimeout = std::chrono::seconds(5);
constexpr auto kNamePatience = std::chrono::seconds(10);
constexpr std::string_view kStoreFdVariable = "DTRAIN_STORE_FD";

std::string text_or(const Environment& environment, std::string_view name, std::string otherwise) {
  const std::string* value = find_variable(environment, name);
  return value != nullptr ? *value : std::move(otherwise);
}

bool wants_shared_memory(const Environment& environment) {
  const std::string text = text_or(environment, "DTRAIN_SHARED_MEMORY", "1");
  if (text == "0" || text == "1") return text == "1";
  throw UsageError("DTRAIN_SHARED_MEMORY: expected 0 or 1, got '" + text + "'; unset it to share memory");
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

// Two jobs may meet on a port; this tells them apart.
std::string job_name(const Placement& placement, const Environment& environment) {
  if (placement.system == JobSystem::slurm) {
    return fmt::format("slurm-{}.{}", text_or(environment, "SLURM_JOB_ID", ""),
                       text_or(environment, "SLURM_STEP_ID", ""));
  }
  if (placement.system == JobSystem::flux) return "flux-" + text_or(environment, "FLUX_JOB_ID", "");
  return text_or(environment, "TORCHELASTIC_RUN_ID", "");
}

// A launcher brings a token along. On loopback this user's own one keeps other users out; a user who starts
// workers on several machines without one has to make it; the error says how.
std::optional<Token> token_for(const Endpoint& endpoint, const Environment& environment, JobSystem system,
                               const Deadline& deadline) {
  const std::optional<Token> given = find_token(environment);
  if (given || system == JobSystem::none) return given;
  const auto addresses = resolve(endpoint, deadline);
  if (std::all_of(addresses.begin(), addresses.end(),
                  [](const SocketAddress& address) { return address.is_loopback(); }))
    return own_user_token(own_user_folder());
  const bool hydra = system == JobSystem::openmpi || system == JobSystem::hydra;
  throw UsageError(
      fmt::format("DTRAIN_TOKEN: expected the job's secret, since other machines can reach rank 0's {}, got "
                  "none; put this line "
                  "before {}:\n    export DTRAIN_TOKEN=$(openssl rand -hex 32)",
                  addresses.front().text(),
                  system == JobSystem::slurm  ? "srun, which hands it on"
                  : system == JobSystem::flux ? "flux run, which hands it on"
                  : hydra                     ? "mpirun, and hand it on with -x DTRAIN_TOKEN"
                          : "the command that starts the workers, on one node, and hand it to all"));
}

bool needs_store(Backend backend, const Placement& placement, const ServerRole& role) {
  if ((*placement.world_size == 1 && role.servers == 0) || backend == Backend::mpi) return false;
  return backend == Backend::tcp || backend == Backend::gloo || backend == Backend::nccl ||
         placement.system != JobSystem::openmpi;
}

// The last ranks serve, and all processes are ranks of one group before they part.
bool meets_by_mpi(Backend backend, const Placement& placement, const ServerRole& role) {
  return role.servers > 0 && !role.beside && !needs_store(backend, placement, role);
}

std::string address_key(int server) { return fmt::format("servers/{}", server); }

}  // namespace

Placement find_placement(const Environment& environment) {
  Placement placement = detect(environment, this_machine());
  const bool alone = !placement.rank || !placement.world_size;
  if (alone) placement.rank = 0, placement.world_size = 1, placement.local_rank = 0;
  if (!placement.local_rank) placement.local_rank = 0;
  return placement;
}

Protection find_protection(const Environment& environment) {
  constexpr std::string_view kVariable = "DTRAIN_TCP_PROTECTION";
  return protection_named(text_or(environment, kVariable, "authenticate"), kVariable);
}

WorkerRendezvous::WorkerRendezvous(const Placement& told, Backend backend, const Environment& environment,
                                   Duration timeout, Log& log, const ServerRole& role)
    : role_(role), token_(find_token(environment)) {
  Placement placement = told;
  if (needs_store(backend, placement, role)) use_reachable_master(placement, kNamePatience);
  if (needs_store(backend, placement, role))
    meet_in_store(placement, environment, Deadline::after(timeout), log);
  master_ = placement.master_addr.value_or("");
  if (!meets_by_mpi(backend, placement, role)) return;
  Bootstrap bootstrap;
  bootstrap.rank = *placement.rank;
  bootstrap.size = role.workers + role.servers;
  bootstrap.timeout = timeout;
  all_ = make_communicator(backend, bootstrap, log);
}

void WorkerRendezvous::meet_in_store(const Placement& placement, const Environment& environment,
                                     const Deadline& deadline, Log& log) {
  const Endpoint endpoint = store_endpoint(placement);
  if (placement.nnodes.value_or(1) > 1) refuse_loopback_name(endpoint.host, "MASTER_ADDR", deadline);
  token_ = token_for(endpoint, environment, placement.system, deadline);
  const std::string job = job_name(placement, environment);
  if (*placement.rank == 0 && !role_.server) {
    StoreServerOptions options;
    options.token = token_;
    options.job = job;
    options.log = &log;
    server_ =
        std::make_unique<StoreServer>(store_listener(environment, endpoint, deadline), std::move(options));
  }
  StoreClientOptions options;
  options.token = token_;
  options.job = job;
  if (role_.server) options.role = "server";
  options.rank = role_.server.value_or(*placement.rank);
  store_ = std::make_unique<StoreClient>(endpoint, std::move(options), deadline);
}

std::unique_ptr<Communicator> WorkerRendezvous::take_group(const Deadline& deadline) {
  return all_ ? all_->split(role_.server ? 1 : 0, all_->rank(), deadline) : nullptr;
}

void WorkerRendezvous::publish(const std::string& address, const Deadline& deadline) {
  if (all_) {
    gather_addresses(address, deadline);
  } else {
    store_->set(address_key(*role_.server), address, deadline);
  }
}

std::vector<std::string> WorkerRendezvous::addresses(const Deadline& deadline) {
  if (all_) return gather_addresses("", deadline);
  std::vector<std::string> addresses;
  for (int server = 0; server < role_.servers; ++server)
    addresses.push_back(store_->get(address_key(server), deadline));
  return addresses;
}

std::vector<std::string> WorkerRendezvous::gather_addresses(const std::string& own,
                                                            const Deadline& deadline) {
  constexpr std::size_t kMostAddressBytes = 1024;
  std::string padded = own;
  padded.resize(kMostAddressBytes);
  std::string all(kMostAddressBytes * static_cast<std::size_t>(all_->size()), '\0');
  all_->all_gather({.data = padded.data(), .count = padded.size(), .dtype = DType::u8},
                   {.data = all.data(), .count = all.size(), .dtype = DType::u8}, "addresses of the servers")
      ->wait(deadline);
  std::vector<std::string> addresses;
  for (int rank = role_.workers; rank < all_->size(); ++rank)
    addresses.emplace_back(all.c_str() + kMostAddressBytes * static_cast<std::size_t>(rank));
  return addresses;
}

std::string WorkerRendezvous::own_address(const Environment& environment, const Deadline& deadline) const {
  const std::string interface = text_or(environment, "GLOO_SOCKET_IFNAME", "");
  std::string address;
  if (!interface.empty() && interface != "lo") {
    address = outward_address(interface);
  } else if (!master_.empty()) {
    address = address_towards(master_, deadline);
  } else if (token_ && store_ == nullptr) {
    address = outward_address("");
  }
  return address.empty() ? "127.0.0.1" : address;
}

void WorkerRendezvous::leave() {
  all_.reset();
  store_.reset();
  if (server_) server_->wait_until_clients(0, Deadline::after(kLeaveTimeout));
}

Peers::Peers(const Placement& placement, Backend backend, const Environment& environment, Duration timeout,
             Log& log, Device* device, SpanRecorder* spans, const ServerRole& role, ServerUpdate update,
             AllReduceAlgorithm all_reduce)
    : rendezvous_(placement, backend, environment, timeout, log, role) {
  if (role.servers > 0) {
    const KeyValueStoreOptions options{*placement.rank, rendezvous_.token(), find_protection(environment)};
    const Deadline deadline = Deadline::after(timeout);
    const std::vector<std::string> addresses = rendezvous_.addresses(deadline);
    auto group = rendezvous_.take_group(deadline);  // servers answer when they have theirs
    servers_ = std::make_unique<KeyValueStore>(addresses, options, deadline);
    if (update == ServerUpdate::async)
      group = make_key_value_communicator(*servers_, *placement.rank, *placement.world_size);
    if (group) {
      communicator_ = std::make_unique<ClosableCommunicator>(std::move(group));
      return;
    }
  }
  Bootstrap bootstrap;
  bootstrap.rank = *placement.rank;
  bootstrap.size = *placement.world_size;
  bootstrap.store = rendezvous_.store();
  bootstrap.token = rendezvous_.token();
  bootstrap.protection = find_protection(environment);
  bootstrap.interface = text_or(environment, "GLOO_SOCKET_IFNAME", "");
  bootstrap.locality.share_memory = wants_shared_memory(environment);
  bootstrap.locality.all_reduce = all_reduce;
  bootstrap.master = rendezvous_.master();
  bootstrap.timeout = timeout;
  bootstrap.device = device;
  bootstrap.spans = spans;
  // Alone there is nobody to talk to, but what could never work is refused all the same.
  const bool on_gpu = device != nullptr && device->type() == DeviceType::cuda;
  const bool alone = *placement.world_size == 1 && (backend != Backend::nccl || on_gpu);
  communicator_ = std::make_unique<ClosableCommunicator>(
      make_communicator(alone ? Backend::self : backend, bootstrap, log));
}

Peers::~Peers() {
  if (std::uncaught_exceptions() > exceptions_)
    communicator_->abort("this worker has failed with its own error; see its output");
}

RpcOptions Peers::rpc_options(const Environment& environment, const Deadline& deadline) const {
  return {.address = rendezvous_.own_address(environment, deadline),
          .host = this_machine().hostname,
          .token = rendezvous_.token(),
          .protection = find_protection(environment)};
}

void Peers::leave() {
  communicator_->close();
  if (servers_) servers_->disconnect(Deadline::after(kLeaveTimeout));
  servers_.reset();
  rendezvous_.leave();
}

}  // namespace dtrain
