// Comings and goings, words, and the time. What becomes of rounds is in membership_rounds.cc.
#include "cluster/rendezvous/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

constexpr Duration kSweepEvery = std::chrono::milliseconds(250);
// When the leader itself was held up, heartbeats wait to be read: nobody is lost before that is done.
constexpr Duration kHeldUp = std::chrono::milliseconds(750);
constexpr Duration kIdle = std::chrono::hours(1);
// Workers that have agreed on a checkpoint end by themselves; the last of them within this time.
constexpr Duration kRequeuePatience = std::chrono::seconds(10);
constexpr Duration kOldestFailure = std::chrono::hours(1);
constexpr std::size_t kShownRefusals = 3;
constexpr int kShownSlow = 3;
constexpr int kUsage = static_cast<int>(ExitCode::usage);

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Membership::Membership(JobRules rules, TimePoint now)
    : rules_(std::move(rules)),
      slots_(rules_.min_nodes, rules_.max_nodes, rules_.hosts, rules_.spares),
      begun_(now),
      progress_(rules_.max_stalled_restarts),
      next_waiting_(now + rules_.waiting_every),
      last_tick_(now),
      next_sweep_(now),
      leases_count_from_(now) {}

Admission Membership::join(ConnectionId id, const NodeOffer& offer, TimePoint now) {
  if (offer.resumes) return resume(id, offer, now);
  // A launcher that asks again has not heard the answer.
  Slot* const own = offer.instance_id == 0 ? nullptr : slots_.find_instance_id(offer.instance_id);
  if (own != nullptr) {
    own->offer.standby = offer.standby;
    return come_back(*own, id, now);
  }
  if (over()) return {-1, over_because_, {}};
  if (const auto kept = kept_out_.find(offer.host); kept != kept_out_.end()) return {-1, kept->second, {}};
  std::string why = slots_.objection(offer);
  if (why.empty() && !elastic() && !takes_replacements() && phase_ != Phase::gathering)
    why = fmt::format("the job of {} nodes has started without host {}; start it again", rules_.max_nodes,
                      offer.host);
  if (!why.empty()) {
    if (phase_ == Phase::gathering && !elastic() && !started_) {
      finish(
          kUsage,
          Failure{
              Failure::Kind::unusable, offer.node_rank.value_or(-1), offer.host, -1, kUsage, false, {why}});
    } else {
      refusals_.push_back("refused: " + why);
      if (refusals_.size() > kShownRefusals) refusals_.erase(refusals_.begin());
      if (phase_ == Phase::gathering) say_waiting(now);
    }
    return {-1, std::move(why), {}};
  }
  const Slot& slot = slots_.add(id, offer, now);
  Admission admission{slot.place, {}, {}};
  if (slot.node_rank < 0) admission.lines = {slot.text() + " will replace the next node that is lost"};
  if (phase_ == Phase::gathering) {
    gather(now);
  } else if (elastic()) {
    admission.lines = {
        fmt::format("the job runs on {} nodes; {} joins at the next checkpoint", nodes_.size(), slot.text())};
    take_in();
  }
  return admission;
}

// All that happened meanwhile it can still hear: events are kept for longer than a lease lasts.
Admission Membership::resume(ConnectionId id, const NodeOffer& offer, TimePoint now) {
  Slot* slot = offer.instance_id == 0 ? nullptr : slots_.find_instance_id(offer.instance_id);
  if (slot == nullptr && inherited_) return claim(id, offer, now);
  if (slot == nullptr && !formed()) {
    // Of a job that continues, or has ended, without the launcher that began this one: a leader that was
    // killed and is started again at once finds those who followed it at its door.
    Admission admission{-1, {}, {}};
    admission.elsewhere = true;
    return admission;
  }
  if (slot == nullptr) return {-1, "the job has continued without this node, whose lease has expired", {}};
  return come_back(*slot, id, now);
}

Admission Membership::come_back(Slot& broken, ConnectionId id, TimePoint now) {
  Slot* const slot = &broken;
  if (!slot->accused.empty()) return {-1, "this node was left behind: " + slot->accused, {}};
  if (slot->broken && slots_.has_place(slot->place))
    return {-1, fmt::format("another launcher has taken node_rank {} in the meantime", slot->place), {}};
  if (!slot->broken) lost_.push_back(slot->id);  // its old connection, which it knows to be dead
  Slot& back = slots_.move(slot->id, id);
  back.last_heard = now;
  back.hung_up_at.reset();
  if (phase_ == Phase::gathering) gather(now);
  if (!back.in_round && elastic()) take_in();
  Admission admission{back.place, {}, {}};
  admission.as_before = !back.begun_anew;
  return admission;
}

void Membership::beat(ConnectionId id, TimePoint now) {
  Slot* slot = slots_.find(id);
  if (slot != nullptr && !slot->broken) slot->last_heard = now;
}

void Membership::hear(ConnectionId id, const NodeEvent& event, TimePoint now, std::uint64_t number) {
  Slot* slot = slots_.find(id);
  if (slot == nullptr || slot->broken || over()) return;
  slot->last_heard = now;
  if (number != 0 && number <= slot->last_event) return;
  if (number != 0) slot->last_event = number;
  std::visit([&](const auto& said) { on(*slot, said, now); }, event);
}

void Membership::on(Slot& slot, const Ready& event, TimePoint now) {
  if (phase_ != Phase::forming || !in_this_round(slot, event.round) || slot.ready) return;
  slot.ready = true;
  if (slot.node_rank == nodes_.front().node_rank) {
    master_port_ = event.master_port;
    master_addr_ = event.master_addr;
  }
  if (--unready_ > 0) return;
  // Who came meanwhile need not wait for a checkpoint.
  slots_.present() > nodes_.size() && slots_.has_rank(0) ? form(now) : start();
}

void Membership::on(Slot& slot, const Failed& event, TimePoint now) {
  if (!in_this_round(slot, event.round) || slot.ended) return;
  SeenFailure seen{event.failure, now - std::clamp(event.age, Duration::zero(), kOldestFailure)};
  seen.failure.node_rank = slot.node_rank;
  seen.failure.host = slot.offer.host;
  if (seen.failure.exit_code == 0) seen.failure.exit_code = static_cast<int>(ExitCode::failure);
  if (seen.failure.kind == Failure::Kind::requeue) {
    requeue_ = true;
    if (phase_ == Phase::running && !requeue_at_) requeue_at_ = now + kRequeuePatience;
  } else if (phase_ == Phase::forming) {
    finish(seen.failure.exit_code, seen.failure);
  } else {
    note(std::move(seen), now);
  }
}

void Membership::on(Slot& slot, const Ended& event, TimePoint now) {
  if (unended_ == 0 || !in_this_round(slot, event.round) || slot.ended) return;
  slot.ended = event.exit_code;
  --unended_;
  all_zero_ = all_zero_ && event.exit_code == 0;
  step_ = std::max(step_, event.step);
  if (event.exit_code == kRequeue) {
    requeue_ = true;
    if (phase_ == Phase::running && !requeue_at_) requeue_at_ = now + kRequeuePatience;
  } else if (event.exit_code != 0 && phase_ == Phase::running && !found_) {
    note({Failure{Failure::Kind::worker,
                  slot.node_rank,
                  slot.offer.host,
                  -1,
                  event.exit_code,
                  false,
                  {fmt::format("{} ended with exit code {}", slot.text(), event.exit_code)}},
          now},
         now);
  }
  if (unended_ == 0) conclude(now);
}

void Membership::on(Slot& slot, const Signalled& event, TimePoint now) {
  const SeenFailure asked{Failure{Failure::Kind::signal,
                                  slot.node_rank,
                                  slot.offer.host,
                                  -1,
                                  128 + event.signal,
                                  false,
                                  {fmt::format("{} got signal {}", slot.text(), event.signal)}},
                          now};
  const bool second = std::exchange(slot.signalled, true);
  if (phase_ == Phase::gathering || (phase_ == Phase::forming && slot.in_round))
    return finish(asked.failure.exit_code, asked.failure);
  if (!slot.in_round) return;  // it was only waiting to be taken in, and leaves
  // The batch system may have signalled every launcher: that is still the first signal.
  if (signal_ && !second) return;
  if (!signal_) {
    const bool failing = phase_ == Phase::stopping && !taking_in_ && found_;
    signal_ = event.signal;
    if (!failing) found_ = asked;
    taking_in_ = again_ = false;
    phase_ = Phase::stopping;
    settle_at_.reset();
    requeue_at_.reset();
    overdue_at_ = now + rules_.stop_within;
  }
  events_.emplace_back(Stop{round_, false, false, event.signal, second, found_->failure});
}

void Membership::on(Slot& slot, const Gone&, TimePoint now) { leave(slot.id, Departure::closed, now); }

void Membership::leave(ConnectionId id, Departure departure, TimePoint now) {
  Slot* slot = slots_.find(id);
  if (slot == nullptr) return;
  const bool at_work = unended_ > 0 && slot->in_round && !slot->ended;
  if (departure == Departure::closed) return lose(id, gone(*slot, now), now);
  if (departure == Departure::silent)
    slot->accused = "it no longer hears this node and ends its workers; the network is cut in one direction";
  if (!at_work && !slot->accused.empty()) return lose(id, silent(*slot, now), now);
  // Its lease decides; it may come back before. By its own clock that has run out with its silence; what is
  // left is our margin.
  if (departure == Departure::silent) slot->lost_at = now + (rules_.lost_after - rules_.lease);
  if (departure == Departure::hung_up) slot->hung_up_at = now;
  slots_.mark_broken(id);
}

Membership::SeenFailure Membership::gone(const Slot& slot, TimePoint now) const {
  Failure failure{Failure::Kind::launcher_lost, slot.node_rank, slot.offer.host, -1, kPeer, false, {}};
  failure.lines = {fmt::format("{} is lost: its launcher was killed or has crashed", slot.text())};
  // A failing worker elsewhere does not kill a launcher, but the other way round it does.
  return {std::move(failure), now - rules_.settle};
}

Membership::SeenFailure Membership::silent(const Slot& slot, TimePoint now) const {
  Failure failure{Failure::Kind::node_lost, slot.node_rank, slot.offer.host, -1, kPeer, false, {}};
  const bool hung_up = slot.hung_up_at && now - slot.last_heard < rules_.lost_after;
  failure.lines = {
      hung_up ? fmt::format("{} is lost: its machine has closed the connection, and its launcher has not "
                            "reconnected for {:.1f} s; it was killed or has crashed",
                            slot.text(), seconds_of(now - *slot.hung_up_at))
      : slot.accused.empty()
          ? fmt::format("{} is lost: not heard from for {:.1f} s; the machine is down, stopped, or cut off",
                        slot.text(), seconds_of(now - slot.last_heard))
          : fmt::format("{} is lost: {}", slot.text(), slot.accused)};
  // It was well when it spoke last, and the next heartbeat is a second later.
  return {std::move(failure), std::min(now, slot.last_heard + std::chrono::seconds(1))};
}

// A node that is lost now, or has been, is not replaced: the job ends.
bool Membership::nobody_goes_on() const noexcept {
  if (phase_ == Phase::running) return restarts_ >= rules_.max_restarts;
  return phase_ == Phase::stopping && !again_ && !taking_in_;
}

// Those whose leases have run out.
void Membership::expire(TimePoint now) {
  if (now - last_tick_ > kHeldUp) leases_count_from_ = now + kCatchUp;
  last_tick_ = now;
  if (over() || now < next_sweep_ || now < leases_count_from_) return;
  next_sweep_ = now + kSweepEvery;
  const Duration patience = nobody_goes_on() ? hang_up_patience(rules_.lease) : rules_.lost_after;
  std::vector<ConnectionId> expired;
  for (const auto& [id, slot] : slots_.slots()) {
    const bool hung_up = slot.hung_up_at && now - *slot.hung_up_at >= patience;
    if (hung_up || now - slot.last_heard >= rules_.lost_after || (slot.lost_at && now >= *slot.lost_at))
      expired.push_back(id);
  }
  for (const ConnectionId id : expired) {
    if (over()) return;
    lost_.push_back(id);
    lose(id, silent(*slots_.find(id), now), now);
  }
}

// A launcher that is stopped, or stuck in a system call, while its node agent beats on. Its connection is
// closed, so that its lease ends; when it has, the others continue.
void Membership::leave_slow_ones_behind(TimePoint now) {
  overdue_at_.reset();
  const bool forming = phase_ == Phase::forming;
  std::vector<ConnectionId> slow;
  for (auto& [id, slot] : slots_.slots()) {
    if (!slot.in_round || slot.broken || (forming ? slot.ready : slot.ended.has_value())) continue;
    slot.accused =
        forming ? fmt::format("it did not get ready within {:.0f} s", seconds_of(rules_.form_within))
                : fmt::format("it did not end its workers within {:.0f} s", seconds_of(rules_.stop_within));
    slow.push_back(id);
  }
  for (const ConnectionId id : slow) {
    if (over()) return;
    lost_.push_back(id);
    leave(id, Departure::broken, now);
  }
}

TimePoint Membership::tick(TimePoint now) {
  if (settle_at_ && now >= *settle_at_) stop_round(now);
  if (requeue_at_ && now >= *requeue_at_) {
    if (!found_) found_ = SeenFailure{Failure{Failure::Kind::requeue, 0, {}, -1, kRequeue, false, {}}, now};
    stop_round(now);
  }
  if (phase_ == Phase::gathering) gather(now);
  if (overdue_at_ && now >= *overdue_at_) leave_slow_ones_behind(now);
  expire(now);
  if (over()) return now + kIdle;
  if (now >= next_waiting_) say_waiting(now);
  TimePoint next = std::min(next_waiting_, now + kSweepEvery);
  for (const auto& due : {settle_at_, requeue_at_, overdue_at_}) {
    if (due) next = std::min(next, *due);
  }
  return next;
}

void Membership::say_waiting(TimePoint now) {
  next_waiting_ = now + rules_.waiting_every;
  std::vector<std::string> lines = waiting_lines(now);
  if (!lines.empty()) events_.emplace_back(Waiting{std::move(lines)});
}

std::vector<std::string> Membership::waiting_lines(TimePoint now) const {
  std::vector<std::string> lines;
  if (phase_ == Phase::gathering) {
    lines.push_back(slots_.count_text());
    if (!rules_.listening.empty()) lines.back() += "; listening on " + rules_.listening;
    if (enough_since_)
      lines.push_back(fmt::format("enough nodes to start; starting without the others in {:.0f} s",
                                  seconds_of(*enough_since_ + rules_.last_call - now)));
    if (started_ && !elastic())
      lines.push_back("start dtrain-launch on another machine with the node_rank of the node that was lost");
    lines.insert(lines.end(), refusals_.begin(), refusals_.end());
  } else if (phase_ == Phase::forming && unready_ > 0) {
    lines.push_back(
        fmt::format("waiting for {} of {} nodes to get ready: {}", unready_, nodes_.size(), slow_ones()));
  } else if (phase_ == Phase::stopping && unended_ > 0) {
    lines.push_back(fmt::format("waiting for {} of {} nodes to end their workers: {}", unended_,
                                nodes_.size(), slow_ones()));
  }
  return lines;
}

std::string Membership::slow_ones() const {
  std::string text;
  int shown = 0;
  for (const auto& [id, slot] : slots_.slots()) {
    if (!slot.in_round || (phase_ == Phase::forming ? slot.ready : slot.ended.has_value())) continue;
    if (shown++ == kShownSlow) return text + ", …";
    text += (text.empty() ? "" : ", ") + slot.text();
  }
  return text;
}

}  // namespace dtrain::rendezvous
