// How a membership is handed from a leader that is lost to its successor.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cluster/rendezvous/membership.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// Of connections that never were; the server counts its own from 0.
constexpr SeatId kInherited = SeatId{1} << 63U;

int place_of(const Leadership& known, int node_rank) {
  for (const auto& [place, seat] : known.displaced) {
    if (seat == node_rank) return place;
  }
  return node_rank;
}

}  // namespace

// As if the round had been running: whose part of it has ended, or never begun, says so when it comes back.
Membership::Membership(JobRules rules, const Inheritance& inheritance, TimePoint now)
    : Membership(std::move(rules), now) {
  const Leadership& known = inheritance.known;
  rules_.launch_time_ns = known.launch_time_ns;
  rules_.job = known.job;
  host_place_ = inheritance.host_place;
  inherited_ = started_ = true;
  round_ = known.round;
  restarts_ = known.restart_count;
  nodes_ = known.nodes;
  displaced_ = known.displaced;
  unended_ = nodes_.size();
  all_zero_ = false;
  for (const RoundNode& node : nodes_) {
    Seat seat;
    seat.id = kInherited + static_cast<SeatId>(node.node_rank);
    seat.place = place_of(known, node.node_rank);
    seat.node_rank = node.node_rank;
    seat.offer.host = node.host;
    seat.offer.nproc = node.nproc;
    seat.last_heard = inheritance.heard;
    seat.in_round = true;
    roster_.inherit(std::move(seat));
  }
  Failure failure{Failure::Kind::node_lost, 0, {}, -1, static_cast<int>(ExitCode::peer), false, {}};
  failure.lines = {inheritance.lost};
  found_ = SeenFailure{std::move(failure), inheritance.heard};
  phase_ = Phase::stopping;
  overdue_at_ = now + rules_.lost_after + rules_.stop_within;
  again_ = restarts_ < rules_.max_restarts;
  news_.emplace_back(Stop{round_, again_, false, std::nullopt, false, found_->failure});
}

// The seat that it had under the leader before, or, for a launcher that had no part in the round, any.
Admission Membership::claim(SeatId id, const NodeOffer& offer, TimePoint now) {
  Seat* const seat = roster_.find_inherited(offer.place);
  const bool took_part = seat != nullptr && offer.round == round_ && offer.job == rules_.job;
  if (offer.place < 0 || (!took_part && offer.at_work))
    return {-1, "the job has gone on without this node, whose lease has run out", {}};
  if (took_part) {
    roster_.claim(*seat, offer);
    const SeatId before = seat->id;
    Admission admission = come_back(*seat, id, now);
    Seat* const back = roster_.find(admission.refused.empty() ? id : before);
    if (back != nullptr && !offer.at_work)
      on(*back, Ended{round_, offer.ended.value_or(static_cast<int>(ExitCode::peer))}, now);
    return admission;
  }
  NodeOffer fresh = offer;
  fresh.node_rank = offer.place;
  std::string why = roster_.objection(fresh);
  if (!why.empty()) return {-1, std::move(why), {}};
  Seat& added = roster_.add(id, fresh, now);
  added.begun_anew = true;
  Admission admission{added.place, {}, {}};
  if (phase_ == Phase::gathering) gather(now);
  return admission;
}

Leadership Membership::leadership() const {
  Leadership known;
  known.job = rules_.job;
  known.restart_count = restarts_;
  known.launch_time_ns = rules_.launch_time_ns;
  known.round = round_;
  known.nodes = nodes_;
  known.displaced = displaced_;
  return known;
}

// One whose connection is broken stays a delegate until its lease has run out.
std::vector<Delegate> Membership::delegates(std::uint64_t host, const std::vector<Delegate>& council) const {
  std::vector<Delegate> delegates;
  const auto add = [&](const Seat* seat) {
    if (seat == nullptr || seat->offer.standby.port == 0) return;
    const std::uint64_t incarnation = seat->offer.incarnation;
    const bool known = std::any_of(delegates.begin(), delegates.end(),
                                   [&](const Delegate& one) { return one.incarnation == incarnation; });
    if (incarnation != 0 && incarnation != host && !known)
      delegates.push_back({incarnation, seat->offer.host, seat->offer.standby});
  };
  for (const Delegate& one : council) add(roster_.find_incarnation(one.incarnation));
  for (auto next = roster_.seats().begin(); next != roster_.seats().end(); ++next) {
    if (delegates.size() >= kMostCouncil - 1) break;
    add(&next->second);
  }
  return delegates;
}

std::uint64_t Membership::incarnation_of(SeatId id) const {
  const auto found = roster_.seats().find(id);
  return found == roster_.seats().end() ? 0 : found->second.offer.incarnation;
}

std::vector<std::uint64_t> Membership::incarnations() const {
  std::vector<std::uint64_t> incarnations;
  for (const auto& [id, seat] : roster_.seats()) {
    if (seat.offer.incarnation != 0) incarnations.push_back(seat.offer.incarnation);
  }
  return incarnations;
}

}  // namespace dtrain::rendezvous
