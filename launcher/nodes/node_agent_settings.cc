// From options and placement; nothing is decided here.
#include "launcher/nodes/node_agent_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/nodes/agreement.h"
#include "launcher/nodes/reach.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kBeat{1};
// A node's workers have ended for certain so long after its lease has.
constexpr std::chrono::seconds kLeaseMargin{2};
// For SIGKILL, and for processes that do not end on it.
constexpr std::chrono::seconds kStopMargin{30};

std::string job_name(const Job& job) { return job.options.run_id.empty() ? "none" : job.options.run_id; }

// Of two launchers neither could know that the other one is gone.
bool succession(const Job& job) {
  const NodePlacement& place = job.placement;
  return place.nodes.least == place.nodes.most && job.options.max_restarts > 0 &&
         place.nodes.most + place.spares > 2;
}

// The way to the rendezvous, as people know it: "10.0.0.2 (eth0)".
std::string own_address(const NodePlacement& place) {
  try {
    const Route route = route_to_rendezvous(place, Deadline::after(kResolveTimeout));
    return fmt::format("{} ({})", route.address, route.interface);
  } catch (const Error&) {
    return "";  // the node agent will try again, and say why it cannot be reached
  }
}

rendezvous::JobRules rules_of(const Job& job) {
  rendezvous::JobRules rules;
  rules.min_nodes = job.placement.nodes.least;
  rules.max_nodes = job.placement.nodes.most;
  rules.spares = job.placement.spares;
  rules.max_restarts = job.options.max_restarts;
  rules.examines = !job.options.health_check.empty();
  rules.max_stalled_restarts = job.options.max_stalled_restarts;
  rules.join_timeout = job.options.join_timeout;
  rules.last_call = job.options.last_call;
  rules.stop_within =
      std::max(job.options.failure_grace, job.options.signal_grace) + job.options.saving_grace + kStopMargin;
  rules.lease = job.options.lease;
  rules.lost_after = job.options.lease + kLeaseMargin;
  rules.launch_time_ns = now_in_ns();
  rules.run_id = job.options.run_id;
  rules.hosts = job.placement.hosts;
  return rules;
}

}  // namespace

NodeAgentSettings node_agent_settings(const Job& job) {
  NodeAgentSettings settings;
  settings.offer.nproc = count_workers(job.options, job.hardware);
  settings.member.server = job.placement.rendezvous;
  settings.member.token = job.token;
  settings.member.insecure = job.options.insecure;
  settings.member.job = job_name(job);
  settings.member.lease = job.options.lease;
  settings.member.join_timeout = job.options.join_timeout;
  settings.member.beat = std::min<Duration>(kBeat, job.options.lease / 4);
  settings.offer.node_rank = job.placement.node_rank;
  settings.offer.host = job.placement.host;
  settings.offer.address = own_address(job.placement);
  settings.offer.must_match = must_match(job);
  settings.connect_timeout = job.options.join_timeout;
  settings.rendezvous.token = job.token;
  settings.rendezvous.insecure = job.options.insecure;
  settings.rendezvous.job = job_name(job);
  settings.rendezvous.rules = rules_of(job);
  settings.succession = succession(job);
  return settings;
}

}  // namespace dtrain::launcher
