// Between the store and the state machine.
#include "cluster/rendezvous/leader/server_observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"

namespace dtrain::rendezvous {
namespace {

// A launcher that has not fetched an event after so long has lost its lease.
constexpr Duration kKeepEvents = std::chrono::seconds(60);  // after that
// A successor that too few follow by then does not lead.
constexpr Duration kEstablish = std::chrono::seconds(5);
constexpr Duration kLookAtVoters = std::chrono::milliseconds(50);
constexpr Duration kLookForElection = std::chrono::seconds(1);
// Twice as long as a voter is silent.
constexpr Duration kMostSlack = std::chrono::milliseconds(500);

void tell(StoreDesk& desk, const LeaderState::Event& event) {
  desk.publish(event_key(event.number), event.news);
}

}  // namespace

ServerObserver::ServerObserver(const ServerOptions& options, Endpoint own, JobRules rules, bool stands_by,
                               const Clock& steady, const Clock& boot)
    : options_(options),
      own_(std::move(own)),
      steady_(steady),
      boot_(boot),
      state_(std::move(rules)),
      keep_events_(options_.lost_after + kKeepEvents) {
  if (!stands_by) state_.found(steady_.now());
  leading_ = state_.open();
}

std::string ServerObserver::on_set(StoreDesk& desk, std::uint64_t client, std::string_view key,
                                   std::string_view value) {
  clients_.insert(client);
  take_lead(desk);
  if (key == kVoteKey) return vote(value);
  if (key == kAnnouncementKey) return hear_announcement(desk, value);
  if (!state_.open()) return key == kJoinKey ? refer() : encode(LeaseGrant{0, Duration::zero()});
  const TimePoint now = steady_.now();
  std::string answer;
  if (key == kJoinKey) {
    answer = join(client, value, now);
  } else if (key == kBeatKey) {
    beat(client, value, now);
  } else if (key == kWordKey) {
    state_.hear(client, split_word(value), now);
  } else if (key == kSilenceKey) {
    state_.leave(client, Departure::silent, now);
  } else if (key == kHeardKey) {
    state_.heard_the_end(client);
  }
  // A heartbeat alone is no news; a voter's may be what others wait for.
  if (key != kBeatKey || voters_) publish(desk, now);
  if (key != kJoinKey && options_.vote_state != nullptr) answer = encode(grant());
  return answer;
}

// However the connection ended: a reset proves nothing, and the network can forge an end. Who leaves in
// order has said so.
void ServerObserver::on_leave(StoreDesk& desk, std::uint64_t client, bool closed) {
  clients_.erase(client);
  if (!state_.open()) return;
  const TimePoint now = steady_.now();
  state_.leave(client, closed ? Departure::hung_up : Departure::broken, now);
  publish(desk, now);
}

TimePoint ServerObserver::on_turn(StoreDesk& desk, TimePoint now) {
  take_lead(desk);
  if (!state_.open()) return now + kLookForElection;
  const TimePoint next = state_.tick(now);
  publish(desk, now);
  return next;
}

// A newcomer hears the news that its own coming makes.
std::string ServerObserver::join(std::uint64_t client, std::string_view value, TimePoint now) {
  const auto offer = decode_offer(value);
  if (!offer) {
    const std::string why = "the rendezvous did not understand the join; run the same dtrain on every node";
    return join_answer(state_.next_event(), encode(Admission{-1, why, {}}));
  }
  Admission admission = state_.join(client, *offer, now);
  const std::uint64_t first = state_.first_event_of(offer->instance_id);
  tell_leadership_ = tell_leadership_ || (voters_ && offer->term != term() && !admission.as_before);
  admission.term = term();
  admission.grant = grant();
  return join_answer(first, encode(admission));
}

void ServerObserver::beat(std::uint64_t client, std::string_view value, TimePoint now) {
  state_.beat(client, now);
  const auto ack = voters_ ? decode_ack(value) : std::nullopt;
  if (!ack) return;
  voters_->hear(state_.instance_id_of(client), *ack, state_.next_event());
}

// Nothing is promised for longer than a majority stands behind it.
LeaseGrant ServerObserver::grant() const {
  if (options_.vote_state == nullptr) return {};
  const TimePoint now = boot_.now();
  const std::int64_t stamp = now.time_since_epoch().count();
  if (!state_.open()) return {0, Duration::zero()};
  if (!voters_) return {stamp, Duration::max()};
  const TimePoint until = voters_->leads_until();
  if (until > now) options_.vote_state->granted(now);
  if (until == TimePoint::max()) return {stamp, Duration::max()};
  return {stamp, until > now ? until - now : Duration::zero()};
}

// Word of the others is a little old: without this every lease would be so much shorter. A successor waits
// for it.
Duration ServerObserver::slack() const noexcept { return std::min(options_.lease / 8, kMostSlack); }

// --- who leads ----------------------------------------------------------------------------------------

std::string ServerObserver::vote(std::string_view value) {
  const auto request = decode_vote_request(value);
  if (!request || options_.vote_state == nullptr) return {};
  VoteAnswer answer;
  if (state_.open() && voters_) {
    answer.current_term = answer.leads = state_.term();
    answer.leader = own_;
  } else {
    answer = options_.vote_state->answer(*request, boot_.now());
  }
  answer.instance_id = options_.instance_id;
  return encode(answer);
}

std::string ServerObserver::hear_announcement(StoreDesk& desk, std::string_view value) {
  const auto announcement = decode_announcement(value);
  if (!announcement || options_.vote_state == nullptr) return {};
  options_.vote_state->hear(*announcement);
  // This one was begun where newcomers begin, while the job continues elsewhere; or a majority follows
  // another one by now.
  if (state_.open() && announcement->term > state_.term()) depose(desk);
  return {};
}

std::string ServerObserver::refer() const {
  Admission admission{-1, {}, {}};
  admission.elsewhere = true;
  if (options_.vote_state != nullptr) {
    admission.leader = options_.vote_state->leader().leader;
    if (admission.leader == own_) admission.leader = {};
  }
  return join_answer(0, encode(admission));
}

void ServerObserver::depose(StoreDesk& desk) {
  for (const LeaderState::Event& event : state_.events()) desk.forget(event_key(event.number));
  state_.close();
  voters_.reset();
  announcer_.reset();
  for (const std::uint64_t client : clients_) desk.expel(client);
  clients_.clear();
  established_ = false;
  const std::lock_guard lock(mutex_);
  leading_ = false;
  ended_.notify_all();
}

// A election that lead() has left.
void ServerObserver::take_lead(StoreDesk& desk) {
  std::optional<ElectionResult> election;
  {
    const std::lock_guard lock(mutex_);
    election.swap(elected_);
  }
  if (!election || election->term <= state_.term()) return;
  if (state_.open()) depose(desk);
  inherit(*election);
  const std::lock_guard lock(mutex_);
  leading_ = true;
}

void ServerObserver::inherit(const ElectionResult& election) {
  const TimePoint now = steady_.now();
  Inheritance inheritance;
  inheritance.known = election.known.leadership;
  inheritance.heard = now - election.heard_ago + slack();
  inheritance.host_place = election.place;
  std::vector<Voter> members = election.known.leadership.voters;
  inheritance.lost = fmt::format(
      "the launcher on host {}, which led the job, is lost: not heard of for {:.1f} s; host {} leads now",
      members.empty() ? "?" : members.front().host, std::chrono::duration<double>(election.heard_ago).count(),
      election.host);
  std::stable_partition(members.begin(), members.end(),
                        [&](const Voter& one) { return one.instance_id == options_.instance_id; });
  state_.inherit(election.term, inheritance, now);
  voters_.emplace(election.term, std::move(members), options_.lease + slack());
  establish_until_ = boot_.now() + kEstablish;
  established_ = false;
  tell_leadership_ = true;
  start_announcer();
}

// To where newcomers look for the job, unless that is here.
void ServerObserver::start_announcer() {
  if (options_.meeting_point.port == 0 || options_.meeting_point == own_) return;
  StoreClientOptions store;
  store.token = options_.token;
  store.insecure = options_.insecure;
  store.job = options_.job;
  store.role = "launcher";
  try {
    announcer_ = std::make_unique<Announcer>(options_.meeting_point, std::move(store),
                                             LeaderAnnouncement{state_.term(), own_});
  } catch (const std::system_error&) {
    // No thread can be had now: tried again when the voters are looked at.
  }
}

// False when this one does not lead any more.
bool ServerObserver::keep_leading(StoreDesk& desk) {
  // What has been said is said: who has not heard the end yet may still do so.
  if (!voters_ || (state_.membership().over() && state_.next() == nullptr)) return true;
  const TimePoint now = boot_.now();
  const bool followed = voters_->leads_until() > now;
  established_ = established_ || followed;
  if (state_.membership().abdicated() || (!followed && (established_ || now >= establish_until_))) {
    depose(desk);
    return false;
  }
  if (!established_ || now < next_look_) return true;
  next_look_ = now + kLookAtVoters;
  if (!announcer_ && state_.term() > 1) start_announcer();
  tell_leadership_ = voters_->adapt(state_.membership().eligible(options_.instance_id, voters_->members()),
                                    state_.next_event() + 1, now) ||
                     tell_leadership_;
  state_.set_successors(voters_->has_successors());
  return true;
}

void ServerObserver::found_voters() {
  std::vector<Voter> members = state_.membership().eligible(options_.instance_id, {});
  members.insert(members.begin(), Voter{options_.instance_id, options_.host, own_});
  // What tells of it is told next.
  voters_.emplace(state_.term(), std::move(members), options_.lease + slack(), boot_.now(),
                  state_.next_event() + 1);
  established_ = true;
  state_.set_successors(voters_->has_successors());
  tell_leadership_ = true;
}

// --- news ---------------------------------------------------------------------------------------------

void ServerObserver::publish(StoreDesk& desk, TimePoint now) {
  for (const std::uint64_t client : state_.take_lost()) desk.expel(client);
  if (state_.forms() && options_.vote_state != nullptr && !voters_) found_voters();
  if (!keep_leading(desk)) return;
  if (std::exchange(tell_leadership_, false)) {
    Leadership leadership = state_.membership().leadership();
    leadership.term = state_.term();
    leadership.voters = voters_->members();
    tell(desk, state_.tell(leadership, now));
  }
  while (state_.next() != nullptr && established_or_alone()) {
    // A round that begins must be known to whoever may succeed, and so must those who take part in it.
    if (std::holds_alternative<Start>(*state_.next()) && voters_ && !voters_->decided(state_.formed_at()))
      break;
    tell(desk, state_.tell_next(now));
  }
  while (!state_.events().empty() && now - state_.events().front().at > keep_events_) {
    desk.forget(event_key(state_.events().front().number));
    state_.forget_first();
  }
  if (!state_.membership().over() || state_.next() != nullptr) return;
  const std::size_t left = state_.unheard();
  const std::lock_guard lock(mutex_);
  over_ = true;
  unheard_ = left;
  ended_.notify_all();
}

// --- from other threads -----------------------------------------------------------------------------------

void ServerObserver::lead(ElectionResult election) {
  const std::lock_guard lock(mutex_);
  elected_ = std::move(election);
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
