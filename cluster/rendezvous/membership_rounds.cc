// Rounds: how they form, start, stop and what follows.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/rendezvous/membership.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// A worker that lost a peer is no cause; the peer's own end is on its way to us.
constexpr Duration kConsequenceSettle = std::chrono::milliseconds(500);

}  // namespace

// Forms the first round when those who should be there are.
void Membership::gather(TimePoint now) {
  const std::size_t present = slots_.present();
  if (present == static_cast<std::size_t>(rules_.max_nodes)) return form(now);
  const bool spared = !elastic() && present + slots_.waiting() >= min_nodes();
  const bool enough = (elastic() && present >= min_nodes() && slots_.has_rank(0)) || spared;
  if (!enough) enough_since_.reset();
  if (enough && !enough_since_) enough_since_ = now;
  const bool late = now - begun_ >= rules_.join_timeout;
  // The node that a spare would take the place of may still come; later one of them was lost.
  if (enough && (late || started_ || now - *enough_since_ >= rules_.last_call)) return form(now);
  if (!late) return;
  std::vector<std::string> lines = waiting_lines(now);
  lines.front() =
      fmt::format("after {:.0f} s: {}", std::chrono::duration<double>(now - begun_).count(), lines.front());
  lines.push_back("start dtrain-launch on the missing nodes too, or find out why they cannot reach this one");
  finish(kPeer, Failure{Failure::Kind::node_lost, -1, {}, -1, kPeer, false, std::move(lines)});
}

// The nodes that were lost are waited for as all were at first.
void Membership::gather_again(TimePoint now) {
  for (auto& [id, slot] : slots_.slots()) slot.in_round = false;
  phase_ = Phase::gathering;
  overdue_at_.reset();
  begun_ = now;
  next_waiting_ = now;
  gather(now);
}

void Membership::form_or_gather(TimePoint now) { enough_left() ? form(now) : gather_again(now); }

void Membership::form(TimePoint now) {
  ++round_;
  if (!elastic()) slots_.promote_spares();
  phase_ = Phase::forming;
  examining_ = rules_.examines && !examined_;
  nodes_ = slots_.nodes();
  displaced_ = slots_.displaced();
  for (auto& [id, slot] : slots_.slots()) {
    slot.in_round = !slot.broken && slot.node_rank >= 0;
    slot.ready = false;
    slot.ended.reset();
  }
  unready_ = nodes_.size();
  unended_ = 0;
  master_port_ = 0;
  master_addr_.clear();
  found_.reset();
  settle_at_.reset();
  requeue_at_.reset();
  overdue_at_ = now + rules_.form_within;
  enough_since_.reset();
  requeue_ = taking_in_ = again_ = false;
  all_zero_ = true;
  step_ = -1;
  next_waiting_ = now + rules_.waiting_every;
  events_.emplace_back(Forming{round_, 0, nodes_, displaced_, restarts_});
}

void Membership::start() {
  phase_ = Phase::running;
  started_ = started_ || !examining_;
  overdue_at_.reset();
  unended_ = nodes_.size();
  events_.emplace_back(Start{round_, restarts_, 0, nodes_, master_port_, rules_.launch_time_ns, rules_.run_id,
                             master_addr_, examining_});
}

// A job that is just ending by itself is left alone.
void Membership::take_in() {
  // Those who come while nodes are examined take part in the next examination.
  if (phase_ != Phase::running || examining_ || found_ || requeue_ || unended_ < nodes_.size()) return;
  examined_ = false;
  phase_ = Phase::stopping;
  taking_in_ = again_ = true;
  events_.emplace_back(Stop{round_, true, true, std::nullopt, false, std::nullopt});
}

bool Membership::enough_left() const noexcept {
  if (!elastic()) return slots_.present() + slots_.waiting() >= min_nodes();
  return slots_.present() >= min_nodes() && slots_.has_rank(0);
}

// Its connection may be broken, but it is here that this is asked.
bool Membership::host_is_here() const {
  const auto& slots = slots_.slots();
  return std::any_of(slots.begin(), slots.end(),
                     [this](const auto& entry) { return entry.second.place == host_place_; });
}

bool Membership::may_go_on() const {
  if (signal_ || restarts_ >= rules_.max_restarts) return false;
  if (elastic() ? !enough_left() : !host_is_here()) return false;
  const Failure::Kind kind = found_->failure.kind;
  return kind != Failure::Kind::unusable && kind != Failure::Kind::requeue && kind != Failure::Kind::signal;
}

void Membership::lose(ConnectionId id, SeenFailure seen, TimePoint now) {
  const Slot slot = *slots_.find(id);
  slots_.remove(id);
  if (over()) return;
  // The successor will find the same, and continue. A slot inherited from a launcher that was at the host's
  // place before is not the host's.
  abdicated_ = abdicated_ || (successors_ && slot.place == host_place_ && !host_is_here());
  if (abdicated_ || (slot.node_rank < 0 && !slot.in_round)) return;  // the latter: a spare
  const bool replaced = phase_ == Phase::gathering && slots_.has_rank(slot.node_rank);
  if (replaced) return;
  if (phase_ == Phase::gathering || (phase_ == Phase::forming && slot.in_round))
    return lose_while_idle(seen, now);
  if (!slot.in_round || slot.ended) return;
  --unended_;
  all_zero_ = false;
  note(std::move(seen), now);
  if (unended_ == 0) conclude(now);
}

// Nobody's workers run.
void Membership::lose_while_idle(const SeenFailure& seen, TimePoint now) {
  if (!takes_replacements() && !elastic()) return finish(seen.failure.exit_code, seen.failure);
  if (elastic() ? seen.failure.node_rank == 0 : !host_is_here())
    return finish(seen.failure.exit_code, seen.failure);
  if (!elastic()) return phase_ == Phase::gathering ? gather(now) : form_or_gather(now);
  if (phase_ == Phase::gathering) return gather(now);
  if (enough_left()) return form(now);
  // The first node may come back: then they meet again.
  if (started_ && slots_.has_rank(0)) return finish(seen.failure.exit_code, seen.failure);
  for (auto& [id, slot] : slots_.slots()) slot.in_round = false;
  phase_ = Phase::gathering;
}

// Keeps the better explanation: a cause before a consequence, then what happened first.
void Membership::note(SeenFailure seen, TimePoint now) {
  if (signal_) return;
  const bool better =
      !found_ || (seen.failure.consequence != found_->failure.consequence ? !seen.failure.consequence
                                                                          : seen.at < found_->at);
  if (better) found_ = std::move(seen);
  if (phase_ != Phase::running && !taking_in_) return;
  const TimePoint due = now + (found_->failure.consequence ? kConsequenceSettle : rules_.settle);
  settle_at_ = settle_at_ ? std::min(*settle_at_, due) : due;
}

void Membership::stop_round(TimePoint now) {
  settle_at_.reset();
  requeue_at_.reset();
  taking_in_ = false;
  phase_ = Phase::stopping;
  overdue_at_ = now + rules_.stop_within;
  again_ = examining_ ? examination_goes_on() : may_go_on();
  events_.emplace_back(Stop{round_, again_, false, std::nullopt, false, found_->failure});
  next_waiting_ = now + rules_.waiting_every;
  if (unended_ == 0) conclude(now);
}

// Every node of the round has ended its part.
void Membership::conclude(TimePoint now) {
  if (signal_) return conclude_signal();
  if (found_ && (phase_ == Phase::running || taking_in_)) return stop_round(now);
  if (examining_) return conclude_examination(now);
  if (taking_in_ && !all_zero_ && enough_left()) return form(now);
  if (phase_ == Phase::running || taking_in_) return all_zero_ ? finish(0, std::nullopt) : finish_early();
  if (!again_ || !may_go_on()) return finish(found_->failure.exit_code, found_->failure);
  // What a lost node had come to is not known, and its loss is no fault of the program's.
  if (found_->failure.kind == Failure::Kind::worker) progress_.failed_at(step_);
  if (progress_.stalled()) return finish_stalled();
  ++restarts_;
  examined_ = false;
  form_or_gather(now);
}

// The cause has been told with the Stop.
void Membership::finish_stalled() {
  Failure failure = found_->failure;
  failure.lines = {progress_.text() + "; the job ends with the cause above"};
  finish(failure.exit_code, std::move(failure));
}

// Ended by themselves or for a newcomer, and nobody continues.
void Membership::finish_early() {
  Failure failure{Failure::Kind::requeue, -1, {}, -1, kRequeue, false, {}};
  failure.lines = {"the workers have written a checkpoint and ask for a restart"};
  if (!requeue_) {
    failure.kind = Failure::Kind::node_lost;
    failure.exit_code = kPeer;
    failure.lines = {"too few nodes are left to continue: " + slots_.count_text()};
  }
  finish(failure.exit_code, failure);
}

void Membership::conclude_signal() {
  Failure failure = found_->failure;
  if (failure.kind == Failure::Kind::signal)
    failure.exit_code = requeue_ ? kRequeue : all_zero_ ? 0 : 128 + *signal_;
  finish(failure.exit_code, std::move(failure));
}

void Membership::finish(int exit_code, std::optional<Failure> failure) {
  if (over()) return;
  phase_ = Phase::over;
  settle_at_.reset();
  requeue_at_.reset();
  overdue_at_.reset();
  if (failure && !failure->lines.empty()) over_because_ += ": " + failure->lines.front();
  events_.emplace_back(Over{exit_code, std::move(failure)});
}

}  // namespace dtrain::rendezvous
