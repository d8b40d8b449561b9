#include "collectives/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cluster/detect/detect.h"
#include "cluster/mpi/module.h"
#include "collectives/backends.h"
#include "runtime/base/environment.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check_bootstrap(const Bootstrap& bootstrap) {
  if (bootstrap.size < 1 || bootstrap.rank < 0 || bootstrap.rank >= bootstrap.size) {
    throw UsageError(fmt::format("communicator: expected a rank in [0, size), got rank {} of {}",
                                 bootstrap.rank, bootstrap.size));
  }
  if (bootstrap.timeout <= Duration::zero()) {
    throw UsageError("communicator: expected a positive timeout, got none");
  }
}

// NCCL has algorithms of its own.
void check_all_reduce(AllReduceAlgorithm asked) {
  if (asked == AllReduceAlgorithm::automatic) return;
  throw UsageError(
      fmt::format("all_reduce algorithm: expected auto with backend nccl, which chooses its own algorithm "
                  "(NCCL_ALGO), got {}",
                  name_of(asked)));
}

constexpr std::array<std::string_view, 7> kBackendNames = {"auto", "nccl",    "tcp", "gloo",
                                                           "mpi",  "threads", "self"};

Backend choose(const Bootstrap& bootstrap) {
  if (bootstrap.size == 1) return Backend::self;
  if (bootstrap.store != nullptr && bootstrap.device != nullptr &&
      bootstrap.device->type() == DeviceType::cuda)
    return Backend::nccl;
  if (bootstrap.rendezvous != nullptr) return Backend::threads;
  if (bootstrap.store == nullptr && detect_mpi(current_environment()).world_size) return Backend::mpi;
  return Backend::tcp;
}

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace

std::vector<std::string> built_backends() {
  std::vector<std::string> names = {"tcp"};
  if (gloo_is_built()) names.emplace_back("gloo");
  if (mpi::is_here()) names.emplace_back("mpi");
  names.emplace_back("threads");
  names.emplace_back("self");
  return names;
}

std::string_view name_of(Backend backend) noexcept {
  return kBackendNames[static_cast<std::size_t>(backend)];
}

Backend backend_named(std::string_view name) {
  const auto found = std::find(kBackendNames.begin(), kBackendNames.end(), name);
  if (found != kBackendNames.end()) return static_cast<Backend>(found - kBackendNames.begin());
  throw UsageError(fmt::format("backend: expected {}, got '{}'", fmt::join(kBackendNames, ", "), name));
}

std::unique_ptr<Communicator> make_communicator(Backend backend, const Bootstrap& bootstrap, Log& log) {
  check_bootstrap(bootstrap);
  Bootstrap complete = bootstrap;
  if (complete.host.empty()) complete.host = own_host_name();
  const Backend chosen = backend == Backend::automatic ? choose(bootstrap) : backend;
  log.write(LogLevel::debug, fmt::format("communicator '{}': rank {} of {} on {} by {}", complete.name,
                                         complete.rank, complete.size, complete.host, name_of(chosen)));
  switch (chosen) {
    case Backend::nccl:
      check_all_reduce(bootstrap.locality.all_reduce);
      return make_nccl_communicator(complete, log);
    case Backend::tcp:
      return make_tcp_communicator(complete, log);
    case Backend::gloo:
      return make_gloo_communicator(complete, log);
    case Backend::mpi:
      return make_mpi_communicator(complete, log);
    case Backend::threads:
      return make_thread_communicator(complete, log);
    case Backend::self:
    case Backend::automatic:  // chosen above
      break;
  }
  if (bootstrap.size == 1) return make_self_communicator();
  throw UsageError(fmt::format("backend self: expected one rank, got {}; use tcp, mpi or threads for several",
                               bootstrap.size));
}

}  // namespace dtrain
