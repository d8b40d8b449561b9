// How a membership is handed from a leader that is lost to its successor.

#include <algorithm>

#include "cluster/rendezvous/membership.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// Of connections that never were; the server counts its own from 0.
constexpr ConnectionId kInherited = ConnectionId{1} << 63U;

int place_of(const Snapshot& known, int node_rank) {
  for (const auto& [place, slot] : known.displaced) {
    if (slot == node_rank) return place;
  }
  return node_rank;
}

}  // namespace

// As if the round had been running: whose part of it has ended, or never begun, says so when it comes back.
Membership::Membership(JobRules rules, const Inheritance& inheritance, TimePoint now)
    : Membership(std::move(rules), now) {
  const Snapshot& known = inheritance.known;
  rules_.launch_time_ns = known.launch_time_ns;
  rules_.job = known.job;
  host_place_ = inheritance.host_place;
  inherited_ = started_ = successors_ = true;
  // After a long search all leases may have run out: its own launcher first, and the others, are on their
  // way.
  leases_count_from_ = now + kCatchUp;
  round_ = known.round;
  restarts_ = known.restart_count;
  nodes_ = known.nodes;
  displaced_ = known.displaced;
  kept_out_ = {known.kept_out.begin(), known.kept_out.end()};
  progress_.inherit(known.best_step, known.stalled_restarts);
  unended_ = nodes_.size();
  all_zero_ = false;
  for (const RoundNode& node : nodes_) {
    Slot slot;
    slot.id = kInherited + static_cast<ConnectionId>(node.node_rank);
    slot.place = place_of(known, node.node_rank);
    slot.node_rank = node.node_rank;
    slot.offer.host = node.host;
    slot.offer.nproc = node.nproc;
    slot.last_heard = inheritance.heard;
    slot.in_round = true;
    slots_.inherit(std::move(slot));
  }
  Failure failure{Failure::Kind::node_lost, 0, {}, -1, static_cast<int>(ExitCode::peer), false, {}};
  failure.lines = {inheritance.lost};
  found_ = SeenFailure{std::move(failure), inheritance.heard};
  phase_ = Phase::stopping;
  overdue_at_ = now + rules_.lost_after + rules_.stop_within;
  again_ = restarts_ < rules_.max_restarts;
  events_.emplace_back(Stop{round_, again_, false, std::nullopt, false, found_->failure});
}

// The slot that it had under the leader before, or, for a launcher that had no part in the round, any.
Admission Membership::claim(ConnectionId id, const NodeOffer& offer, TimePoint now) {
  Slot* const slot = slots_.find_inherited(offer.place);
  const bool took_part = slot != nullptr && offer.round == round_ && offer.job == rules_.job;
  if (offer.place < 0 || (!took_part && offer.at_work))
    return {-1, "the job has continued without this node, whose lease has expired", {}};
  if (took_part) {
    slots_.claim(*slot, offer);
    const ConnectionId before = slot->id;
    Admission admission = come_back(*slot, id, now);
    Slot* const back = slots_.find(admission.refused.empty() ? id : before);
    if (back != nullptr && !offer.at_work)
      on(*back, Ended{round_, offer.ended.value_or(static_cast<int>(ExitCode::peer))}, now);
    return admission;
  }
  if (over()) return {-1, over_because_, {}};
  NodeOffer fresh = offer;
  fresh.node_rank = offer.place;
  std::string why = slots_.objection(fresh);
  if (!why.empty()) return {-1, std::move(why), {}};
  Slot& added = slots_.add(id, fresh, now);
  added.begun_anew = true;
  Admission admission{added.place, {}, {}};
  if (phase_ == Phase::gathering) gather(now);
  return admission;
}

Snapshot Membership::snapshot() const {
  Snapshot known;
  known.job = rules_.job;
  known.restart_count = restarts_;
  known.launch_time_ns = rules_.launch_time_ns;
  known.round = round_;
  known.nodes = nodes_;
  known.displaced = displaced_;
  known.kept_out.assign(kept_out_.begin(), kept_out_.end());
  known.best_step = progress_.best_step();
  known.stalled_restarts = progress_.stalled_restarts();
  return known;
}

// One whose connection is broken stays a voter until its lease has run out.
std::vector<Voter> Membership::eligible(std::uint64_t host, const std::vector<Voter>& voters) const {
  std::vector<Voter> eligible;
  const auto add = [&](const Slot* slot) {
    if (slot == nullptr || slot->offer.standby.port == 0) return;
    const std::uint64_t instance_id = slot->offer.instance_id;
    const bool known = std::any_of(eligible.begin(), eligible.end(),
                                   [&](const Voter& one) { return one.instance_id == instance_id; });
    if (instance_id != 0 && instance_id != host && !known)
      eligible.push_back({instance_id, slot->offer.host, slot->offer.standby});
  };
  for (const Voter& one : voters) add(slots_.find_instance_id(one.instance_id));
  for (auto next = slots_.slots().begin(); next != slots_.slots().end(); ++next) {
    if (eligible.size() >= kMostVoters - 1) break;
    add(&next->second);
  }
  return eligible;
}

std::uint64_t Membership::instance_id_of(ConnectionId id) const {
  const auto found = slots_.slots().find(id);
  return found == slots_.slots().end() ? 0 : found->second.offer.instance_id;
}

std::vector<std::uint64_t> Membership::instance_ids() const {
  std::vector<std::uint64_t> instance_ids;
  for (const auto& [id, slot] : slots_.slots()) {
    if (slot.offer.instance_id != 0) instance_ids.push_back(slot.offer.instance_id);
  }
  return instance_ids;
}

}  // namespace dtrain::rendezvous
