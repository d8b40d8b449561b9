// Between the store and the state machine.
#include "cluster/rendezvous/leader/server_observer.h"

#include <fmt/format.h>

#include <utility>

#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"

namespace dtrain::rendezvous {
namespace {

// A launcher that has not fetched an event after so long has lost its lease.
constexpr Duration kKeepEvents = std::chrono::seconds(60);  // after that
constexpr Duration kLookForElection = std::chrono::seconds(1);

void tell(StoreControl& store, const LeaderState::Event& event) {
  store.publish(event_key(event.number), event.event);
}

}  // namespace

ServerObserver::ServerObserver(const ServerOptions& options, Endpoint own, bool stands_by,
                               const Clock& steady, const Clock& boot)
    : own_(std::move(own)),
      steady_(steady),
      boot_(boot),
      state_(options.rules),
      leadership_(options.leadership),
      keep_events_(options.rules.lost_after + kKeepEvents) {
  if (leadership_ != nullptr) leadership_->serve_at(own_);
  if (!stands_by) state_.found(steady_.now());
  leading_ = state_.open();
}

std::string ServerObserver::on_set(StoreControl& store, std::uint64_t client, std::string_view key,
                                   std::string_view value) {
  clients_.insert(client);
  take_lead(store);
  if (key == kVoteKey) return vote(value);
  if (key == kAnnouncementKey) return hear_announcement(store, value);
  if (!state_.open()) return key == kJoinKey ? refer() : encode(LeaseGrant{0, Duration::zero()});
  const TimePoint now = steady_.now();
  std::string answer;
  if (key == kJoinKey) {
    answer = join(client, value, now);
  } else if (key == kBeatKey) {
    beat(client, value, now);
  } else if (key == kNodeEventKey) {
    state_.hear(client, split_event(value), now);
  } else if (key == kSilenceKey) {
    state_.leave(client, Departure::silent, now);
  } else if (key == kHeardKey) {
    state_.heard_the_end(client);
  }
  // A heartbeat alone is no event; a voter's may be what others wait for.
  if (key != kBeatKey || has_voters()) publish(store, now);
  if (key != kJoinKey && leadership_ != nullptr) answer = encode(grant());
  return answer;
}

// However the connection ended: a reset proves nothing, and the network can forge an end. Who leaves in
// order has said so.
void ServerObserver::on_leave(StoreControl& store, std::uint64_t client, bool closed) {
  clients_.erase(client);
  if (!state_.open()) return;
  const TimePoint now = steady_.now();
  state_.leave(client, closed ? Departure::hung_up : Departure::broken, now);
  publish(store, now);
}

TimePoint ServerObserver::on_turn(StoreControl& store, TimePoint now) {
  take_lead(store);
  if (!state_.open()) return now + kLookForElection;
  const TimePoint next = state_.tick(now);
  publish(store, now);
  return next;
}

// A newcomer hears the events that its own coming makes.
std::string ServerObserver::join(std::uint64_t client, std::string_view value, TimePoint now) {
  const auto offer = decode_offer(value);
  if (!offer) {
    const std::string why = "the rendezvous did not understand the join; run the same dtrain on every node";
    return join_answer(state_.next_event(), encode(Admission{-1, why, {}}));
  }
  const std::uint64_t term = leadership_ == nullptr ? 0 : leadership_->term();
  const bool follows_another = offer->term != term;
  Admission admission = state_.join(client, *offer, follows_another, now);
  const std::uint64_t first = state_.first_event_of(offer->instance_id);
  tell_snapshot_ = tell_snapshot_ || (has_voters() && follows_another && !admission.as_before);
  admission.term = term;
  admission.grant = grant();
  return join_answer(first, encode(admission));
}

void ServerObserver::beat(std::uint64_t client, std::string_view value, TimePoint now) {
  state_.beat(client, now);
  if (has_voters()) leadership_->acknowledged(state_.instance_id_of(client), value, state_.next_event());
}

LeaseGrant ServerObserver::grant() {
  if (leadership_ == nullptr) return {};
  return state_.open() ? leadership_->renew(boot_.now()) : LeaseGrant{0, Duration::zero()};
}

// --- who leads ----------------------------------------------------------------------------------------

std::string ServerObserver::vote(std::string_view value) {
  const auto request = decode_vote_request(value);
  if (!request || leadership_ == nullptr) return {};
  return encode(leadership_->answer(*request, boot_.now()));
}

std::string ServerObserver::hear_announcement(StoreControl& store, std::string_view value) {
  const auto announcement = decode_announcement(value);
  if (!announcement || leadership_ == nullptr) return {};
  // This one was begun where newcomers begin, while the job continues elsewhere; or a majority follows
  // another one by now.
  if (leadership_->superseded_by(*announcement) && state_.open()) depose(store);
  return {};
}

std::string ServerObserver::refer() const {
  Admission admission{-1, {}, {}};
  admission.elsewhere = true;
  if (leadership_ != nullptr) {
    admission.leader = leadership_->leader();
    if (admission.leader == own_) admission.leader = {};
  }
  return join_answer(0, encode(admission));
}

void ServerObserver::depose(StoreControl& store) {
  for (const LeaderState::Event& event : state_.events()) store.forget(event_key(event.number));
  state_.close();
  leadership_->resign();
  for (const std::uint64_t client : clients_) store.expel(client);
  clients_.clear();
  const std::lock_guard lock(mutex_);
  leading_ = false;
  ended_.notify_all();
}

// What lead() has left.
void ServerObserver::take_lead(StoreControl& store) {
  std::optional<Succession> succession;
  {
    const std::lock_guard lock(mutex_);
    succession.swap(succession_);
  }
  if (!succession) return;
  if (state_.open()) depose(store);
  const Election& election = succession->election;
  if (!leadership_->lead(election, boot_.now())) return;
  Inheritance inheritance;
  inheritance.heard = steady_.now() - election.heard_ago + leadership_->slack();
  inheritance.host_place = succession->place;
  inheritance.lost = fmt::format(
      "the launcher on host {}, which led the job, is lost: not heard from for {:.1f} s; host {} leads now",
      election.voters.empty() ? "?" : election.voters.front().host,
      std::chrono::duration<double>(election.heard_ago).count(), leadership_->host());
  inheritance.known = std::move(succession->known);
  state_.inherit(inheritance, steady_.now());
  tell_snapshot_ = true;
  const std::lock_guard lock(mutex_);
  leading_ = true;
}

// False when this one does not lead any more.
bool ServerObserver::keep_leading(StoreControl& store) {
  // What has been said is said: who has not heard the end yet may still do so.
  if (!has_voters() || (state_.membership().over() && state_.next() == nullptr)) return true;
  const TimePoint now = boot_.now();
  if (!leadership_->holds(now) || state_.membership().abdicated()) {
    depose(store);
    return false;
  }
  if (!leadership_->decided(0)) return true;
  const auto present = [this](const std::vector<Voter>& members) {
    return state_.membership().eligible(leadership_->instance_id(), members);
  };
  tell_snapshot_ = leadership_->adapt(present, state_.next_event() + 1, now) || tell_snapshot_;
  state_.set_successors(leadership_->voters()->has_successors());
  return true;
}

void ServerObserver::found_voters() {
  // What tells of them is told next.
  leadership_->found(state_.membership().eligible(leadership_->instance_id(), {}), state_.next_event() + 1,
                     boot_.now());
  state_.set_successors(leadership_->voters()->has_successors());
  tell_snapshot_ = true;
}

// --- events ---------------------------------------------------------------------------------------------

void ServerObserver::publish(StoreControl& store, TimePoint now) {
  for (const std::uint64_t client : state_.take_lost()) store.expel(client);
  if (state_.forms() && leadership_ != nullptr && !leadership_->leads()) found_voters();
  if (!keep_leading(store)) return;
  if (std::exchange(tell_snapshot_, false)) {
    Snapshot snapshot = state_.membership().snapshot();
    snapshot.voters = leadership_->voters()->members();
    tell(store, state_.tell(snapshot, now));
  }
  while (state_.next() != nullptr && may_tell(*state_.next())) tell(store, state_.tell_next(now));
  while (!state_.events().empty() && now - state_.events().front().at > keep_events_) {
    store.forget(event_key(state_.events().front().number));
    state_.forget_first();
  }
  if (!state_.membership().over() || state_.next() != nullptr) return;
  const std::size_t left = state_.unheard();
  const std::lock_guard lock(mutex_);
  over_ = true;
  unheard_ = left;
  ended_.notify_all();
}

// A round that begins must be known to anyone who may succeed, and so must those who take part in it.
bool ServerObserver::may_tell(const LeaderEvent& event) const {
  const bool starts = std::holds_alternative<Start>(event);
  return leadership_ == nullptr || leadership_->decided(starts ? state_.formed_at() : 0);
}

// --- from other threads -----------------------------------------------------------------------------------

void ServerObserver::lead(Succession succession) {
  const std::lock_guard lock(mutex_);
  succession_ = std::move(succession);
  leading_ = true;
}

bool ServerObserver::leads() const {
  const std::lock_guard lock(mutex_);
  return leading_ && !over_;
}

ServerObserver::End ServerObserver::wait_until_over(const Deadline& deadline) const {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return (over_ && unheard_ == 0) || !leading_; };
  if (deadline.is_never())
    ended_.wait(lock, is_over);
  else if (!ended_.wait_until(lock, *deadline.at(), is_over))
    return over_ ? End::over : End::not_yet;
  return over_ ? End::heard : End::elsewhere;
}

}  // namespace dtrain::rendezvous
