// Asks MPI and Slurm, and checks that a secret is there where one is needed.
#include "launcher/nodes/reach.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cluster/detect/slurm_node.h"
#include "launcher/system/helper.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

using std::chrono::seconds;

constexpr seconds kExchangeTimeout{60};
constexpr seconds kScontrolTimeout{10};
constexpr seconds kSayWaiting{10};

std::optional<SocketAddress> try_resolve(const Endpoint& endpoint, const Deadline& deadline) {
  try {
    return resolve(endpoint, deadline).front();
  } catch (const PeerError&) {
    return std::nullopt;
  }
}

// All launchers do this together, so that one that fails lets the others fail too.
void ask_mpi(NodePlacement& placement, std::optional<Token>& token, const LaunchOptions& options,
             const std::string& own_folder) {
  const std::string helper = own_folder + "/dtrain-mpi-exchange";
  const std::string otherwise =
      "; or give both: --master-addr ADDR, and a secret with DTRAIN_TOKEN (mpirun -x DTRAIN_TOKEN) or "
      "--token-file FILE";
  if (::access(helper.c_str(), X_OK) != 0)
    throw UsageError("under mpirun launchers ask MPI for an address and a secret, but there is no " + helper +
                     " (built where MPI is found)" + otherwise);
  std::vector<std::string> argv{helper};
  if (!options.iface.empty()) argv.insert(argv.end(), {"--iface", options.iface});
  const HelperResult result = run_helper(argv, Deadline::after(kExchangeTimeout));
  const auto answer = nlohmann::json::parse(result.out, nullptr, false);
  if (result.exit_code != 0 || !answer.is_object())
    throw UsageError(fmt::format("{} {}, so launchers know neither address nor secret{}", helper,
                                 result.timed_out
                                     ? fmt::format("gave no answer in {} s", kExchangeTimeout.count())
                                     : fmt::format("failed (exit code {})", result.exit_code),
                                 otherwise));
  const int launchers = placement.nodes.most + placement.spares;
  if (answer.at("size").get<int>() != launchers && !options.nnodes)
    throw UsageError(
        fmt::format("{}: expected {} launchers, found {}: it was built with another MPI than this mpirun's{}",
                    helper, launchers, answer.at("size").get<int>(), otherwise));
  if (!token) token = parse_token(answer.at("token").get<std::string>(), "the answer of " + helper);
  if (!placement.master_addr.empty()) return;
  placement.master_addr = answer.at("address").get<std::string>();
  placement.rendezvous = {placement.master_addr, answer.at("port").get<std::uint16_t>()};
}

// Only a step's first node, as Slurm names it, has an address that Slurm knows better than the name service.
void ask_slurm(NodePlacement& placement) {
  if (placement.system != JobSystem::slurm || placement.hosts.empty() ||
      placement.master_addr != placement.hosts.front())
    return;
  const auto known = try_resolve({placement.master_addr, 0}, Deadline::after(kResolveTimeout));
  if (known && !is_loopback_name(placement.master_addr, Deadline::after(kResolveTimeout))) return;
  const auto address = slurm_node_address(placement.master_addr, Deadline::after(kScontrolTimeout));
  if (!address && known) return;
  if (!address)
    throw UsageError(
        fmt::format("--master-addr: the name {} of this step's first node cannot be resolved, and `scontrol "
                    "show node {}` gives no address; give --master-addr",
                    placement.master_addr, placement.master_addr));
  if (placement.rendezvous.host == placement.master_addr) placement.rendezvous.host = *address;
  placement.master_addr = *address;
}

// What follows depends on the address: who is first, this node's way there, whether it can lead.
void await_name(const Endpoint& meeting_point, const Deadline& deadline,
                const std::function<void(const std::string&)>& say) {
  while (true) {
    const Duration turn = std::min<Duration>(kSayWaiting, deadline.remaining());
    try {
      resolve_when_known(meeting_point, Deadline::after(turn));
      return;
    } catch (const PeerError& error) {
      if (deadline.expired()) throw;
      say(std::string("waiting for the name of node 0: ") + error.what());
    }
  }
}

// Good for listening; but workers are told this address, and each would look for rank 0 on its own machine.
void refuse_every_interface(const std::string& host, std::string_view what) {
  const auto address = try_resolve({host, 0}, Deadline::after(kResolveTimeout));
  if (!address || !address->is_any()) return;
  const std::string outward = outward_address("");
  throw UsageError(fmt::format(
      "{}: expected an address of node 0 that all nodes can reach, got {}, which stands for every interface; "
      "give {}the same on every node",
      what, host,
      outward.empty() ? "an address, " : fmt::format("this machine's {} if it is node 0, ", outward)));
}

bool meets_on_loopback(const NodePlacement& placement) {
  const auto address = try_resolve(placement.rendezvous, Deadline::after(kResolveTimeout));
  return address && address->is_loopback();
}

std::string how_to_share(const NodePlacement& placement) {
  if (placement.system == JobSystem::slurm)
    return "before srun run: export DTRAIN_TOKEN=$(openssl rand -hex 32), or give --token-file";
  if (placement.system == JobSystem::flux)
    return "before flux run: export DTRAIN_TOKEN=$(openssl rand -hex 32), or give --token-file";
  return "set the same DTRAIN_TOKEN on every node (make one with: openssl rand -hex 32), or give "
         "--token-file";
}

}  // namespace

std::optional<Token> find_secret(const LaunchOptions& options, const Environment& environment) {
  const auto source = options.sources.find("token-file");
  const bool said = source != options.sources.end() && source->second != "DTRAIN_TOKEN_FILE";
  if (said) return read_token_file(options.token_file);
  return find_token(environment);
}

std::string secret_source(const NodePlacement& placement, const std::optional<Token>& token,
                          const LaunchOptions& options) {
  if (token) return "given";
  if (options.insecure) return "none (--insecure)";
  if (placement.ask_mpi) return "exchanged over MPI by dtrain-mpi-exchange";
  return meets_on_loopback(placement) ? (own_user_folder() / "token").string() : "none";
}

void complete_placement(NodePlacement& placement, std::optional<Token>& token, const LaunchOptions& options,
                        const std::string& own_folder, const std::function<void(const std::string&)>& say) {
  if (placement.ask_mpi) ask_mpi(placement, token, options, own_folder);
  ask_slurm(placement);
  if (token || options.insecure) await_name(placement.rendezvous, Deadline::after(options.join_timeout), say);
  const char* const given = options.rdzv_endpoint ? "--rdzv-endpoint" : "--master-addr";
  refuse_loopback_name(placement.rendezvous.host, given, Deadline::after(kResolveTimeout));
  refuse_loopback_name(placement.master_addr, "--master-addr", Deadline::after(kResolveTimeout));
  refuse_every_interface(placement.master_addr, options.master_addr.empty() ? given : "--master-addr");
  if (token || options.insecure) return;
  if (meets_on_loopback(placement)) {
    token = own_user_token(own_user_folder());
    return;
  }
  throw UsageError(
      fmt::format("launchers meet at {}, which others can reach, so they need a secret: {}; or pass "
                  "--insecure to run without one",
                  placement.rendezvous.text(), how_to_share(placement)));
}

bool rendezvous_is_here(const NodePlacement& placement, const Deadline& deadline) {
  const auto address = try_resolve(placement.rendezvous, deadline);
  return address && is_own_address(*address);
}

// On this machine it can be seen that somebody else listens where the launchers are to meet.
Route route_to_rendezvous(const NodePlacement& placement, const Deadline& deadline) {
  return route_to(resolve(placement.rendezvous, deadline).front());
}

std::string no_answer_from(const Endpoint& meeting_point, const Deadline& deadline) {
  const std::string text = "no answer yet from the rendezvous at " + meeting_point.text();
  try {
    const SocketAddress there = resolve(meeting_point, deadline).front();
    const std::string owner = is_own_address(there) ? port_owner(there) : std::string();
    if (!owner.empty())
      return text + "; " + owner +
             " listens there: unless that is a launcher of this job, choose another port";
  } catch (const Error&) {  // what cannot be found out is left unsaid
  }
  return text + "; does the launcher of node_rank 0 run there?";
}

}  // namespace dtrain::launcher
