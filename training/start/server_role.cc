#include "training/start/server_role.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Set by the launcher for each process of a job with servers: the server's number, or "none" for a worker.
constexpr std::string_view kServerVariable = "DTRAIN_SERVER";
constexpr int kMostServers = 65'536;

std::int64_t number_in(const Environment& environment, std::string_view name) {
  const std::string* text = find_variable(environment, name);
  const auto value = text != nullptr ? parse_integer(*text) : std::nullopt;
  if (!value || *value < 0 || *value > kMostServers)
    throw UsageError(fmt::format("{}: expected a number with {}, which dtrain-launch sets, got '{}'", name,
                                 kServerVariable, text != nullptr ? *text : ""));
  return *value;
}

ServerRole role_beside(const Options& options, const Environment& environment, const std::string& own) {
  ServerRole role;
  role.beside = true;
  role.workers = static_cast<int>(number_in(environment, "WORLD_SIZE"));
  role.servers = static_cast<int>(number_in(environment, "DTRAIN_SERVERS"));
  if (options.integer("servers", 0, kMostServers) != role.servers)
    options.refuse(
        "servers",
        fmt::format("the {} that dtrain-launch --servers has started, or no such option", role.servers));
  if (own != "none") role.server = static_cast<int>(number_in(environment, kServerVariable));
  return role;
}

}  // namespace

ServerRole find_server_role(const Options& options, const Placement& placement,
                            const Environment& environment) {
  const std::string* beside = find_variable(environment, kServerVariable);
  if (beside != nullptr && !beside->empty()) return role_beside(options, environment, *beside);
  ServerRole role;
  role.servers = static_cast<int>(options.integer("servers", 0, kMostServers));
  const int processes = *placement.world_size;
  role.workers = processes - role.servers;
  if (role.workers < 1) {
    throw UsageError(fmt::format(
        "--servers: expected at least one worker in addition to the servers, got {} server{} among {} "
        "process{}; start "
        "more, or use dtrain-launch --servers, which starts servers in addition to the workers",
        role.servers, role.servers == 1 ? "" : "s", processes, processes == 1 ? "" : "es"));
  }
  if (*placement.rank >= role.workers) role.server = *placement.rank - role.workers;
  return role;
}

}  // namespace dtrain
