#include "collectives/factory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "cluster/detect/detect.h"
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

std::string_view choose(const Bootstrap& bootstrap) {
  if (bootstrap.size == 1) return "self";
  if (bootstrap.store != nullptr && bootstrap.device != nullptr &&
      bootstrap.device->type() == DeviceType::cuda)
    return "nccl";
  if (mpi_is_built() && bootstrap.store == nullptr && detect_mpi(current_environment()).world_size)
    return "mpi";
  return gloo_is_built() ? "gloo" : "mpi";
}

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace

std::vector<std::string> built_backends() {
  std::vector<std::string> names;
  if (gloo_is_built()) names.emplace_back("gloo");
  if (mpi_is_built()) names.emplace_back("mpi");
  names.emplace_back("self");
  return names;
}

std::unique_ptr<Communicator> make_communicator(std::string_view backend, const Bootstrap& bootstrap,
                                                Log& log) {
  check_bootstrap(bootstrap);
  Bootstrap complete = bootstrap;
  if (complete.host.empty()) complete.host = own_host_name();
  const std::string_view chosen = backend == "auto" ? choose(bootstrap) : backend;
  log.write(LogLevel::debug, fmt::format("communicator '{}': rank {} of {} on {} by {}", complete.name,
                                         complete.rank, complete.size, complete.host, chosen));
  if (chosen == "nccl") return make_nccl_communicator(complete, log);
  if (chosen == "gloo") return make_gloo_communicator(complete, log);
  if (chosen == "mpi") return make_mpi_communicator(complete, log);
  if (chosen == "self" && bootstrap.size == 1) return make_self_communicator();
  if (chosen == "self") {
    throw UsageError(
        fmt::format("backend self: expected a world of one, got {} ranks; use gloo or mpi", bootstrap.size));
  }
  throw UsageError(fmt::format("backend: expected auto, nccl, gloo, mpi or self, got '{}'", backend));
}

}  // namespace dtrain
