// Between the store and the state machine.
#include "cluster/rendezvous/leader/coordinator_observer.h"

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
constexpr Duration kLookAtCouncil = std::chrono::milliseconds(50);
constexpr Duration kLookForMandate = std::chrono::seconds(1);
// Twice as long as a delegate is silent.
constexpr Duration kMostSlack = std::chrono::milliseconds(500);

void tell(StoreDesk& desk, const Office::Event& event) { desk.publish(event_key(event.number), event.news); }

}  // namespace

CoordinatorObserver::CoordinatorObserver(const CoordinatorOptions& options, Endpoint own, JobRules rules,
                                         bool stands_by, const Clock& steady, const Clock& boot)
    : options_(options),
      own_(std::move(own)),
      steady_(steady),
      boot_(boot),
      office_(std::move(rules)),
      keep_events_(options_.lost_after + kKeepEvents) {
  if (!stands_by) office_.found(steady_.now());
  leading_ = office_.open();
}

std::string CoordinatorObserver::on_set(StoreDesk& desk, std::uint64_t client, std::string_view key,
                                        std::string_view value) {
  clients_.insert(client);
  take_office(desk);
  if (key == kVoteKey) return vote(value);
  if (key == kClaimKey) return hear_claim(desk, value);
  if (!office_.open()) return key == kJoinKey ? refer() : encode(Grant{0, Duration::zero()});
  const TimePoint now = steady_.now();
  std::string answer;
  if (key == kJoinKey) {
    answer = join(client, value, now);
  } else if (key == kBeatKey) {
    beat(client, value, now);
  } else if (key == kWordKey) {
    office_.hear(client, split_word(value), now);
  } else if (key == kSilenceKey) {
    office_.leave(client, Departure::silent, now);
  } else if (key == kHeardKey) {
    office_.heard_the_end(client);
  }
  // A heartbeat alone is no news; of a council's it may be what others wait for.
  if (key != kBeatKey || council_) publish(desk, now);
  if (key != kJoinKey && options_.voter != nullptr) answer = encode(grant());
  return answer;
}

// However the connection ended: a reset proves nothing, and the network can forge an end. Who leaves in
// order has said so.
void CoordinatorObserver::on_leave(StoreDesk& desk, std::uint64_t client, bool closed) {
  clients_.erase(client);
  if (!office_.open()) return;
  const TimePoint now = steady_.now();
  office_.leave(client, closed ? Departure::hung_up : Departure::broken, now);
  publish(desk, now);
}

TimePoint CoordinatorObserver::on_turn(StoreDesk& desk, TimePoint now) {
  take_office(desk);
  if (!office_.open()) return now + kLookForMandate;
  const TimePoint next = office_.tick(now);
  publish(desk, now);
  return next;
}

// A newcomer hears the news that its own coming makes.
std::string CoordinatorObserver::join(std::uint64_t client, std::string_view value, TimePoint now) {
  const auto offer = decode_offer(value);
  if (!offer) {
    const std::string why = "the rendezvous did not understand the join; run the same dtrain on every node";
    return join_answer(office_.next_event(), encode(Admission{-1, why, {}}));
  }
  Admission admission = office_.join(client, *offer, now);
  const std::uint64_t first = office_.first_event_of(offer->incarnation);
  tell_leadership_ = tell_leadership_ || (council_ && offer->epoch != epoch() && !admission.as_before);
  admission.epoch = epoch();
  admission.grant = grant();
  return join_answer(first, encode(admission));
}

void CoordinatorObserver::beat(std::uint64_t client, std::string_view value, TimePoint now) {
  office_.beat(client, now);
  const auto echo = council_ ? decode_echo(value) : std::nullopt;
  if (!echo) return;
  council_->hear(office_.incarnation_of(client), *echo, office_.next_event());
}

// Nothing is promised for longer than a majority stands behind it.
Grant CoordinatorObserver::grant() const {
  if (options_.voter == nullptr) return {};
  const TimePoint now = boot_.now();
  const std::int64_t stamp = now.time_since_epoch().count();
  if (!office_.open()) return {0, Duration::zero()};
  if (!council_) return {stamp, Duration::max()};
  const TimePoint until = council_->leads_until();
  if (until == TimePoint::max()) return {stamp, Duration::max()};
  return {stamp, until > now ? until - now : Duration::zero()};
}

// Word of the others is a little old: without this every lease would be so much shorter. A successor waits
// for it.
Duration CoordinatorObserver::slack() const noexcept { return std::min(options_.lease / 8, kMostSlack); }

// --- who leads ----------------------------------------------------------------------------------------

std::string CoordinatorObserver::vote(std::string_view value) {
  const auto request = decode_vote_request(value);
  if (!request || options_.voter == nullptr) return {};
  VoteAnswer answer;
  if (office_.open() && council_) {
    answer.promised = answer.leads = office_.epoch();
    answer.leader = own_;
  } else {
    answer = options_.voter->answer(*request, boot_.now());
  }
  answer.incarnation = options_.incarnation;
  return encode(answer);
}

std::string CoordinatorObserver::hear_claim(StoreDesk& desk, std::string_view value) {
  const auto claim = decode_claim(value);
  if (!claim || options_.voter == nullptr) return {};
  options_.voter->hear(*claim);
  // This one was begun where newcomers begin, while the job goes on elsewhere; or a majority follows another
  // one by now.
  if (office_.open() && claim->epoch > office_.epoch()) depose(desk);
  return {};
}

std::string CoordinatorObserver::refer() const {
  Admission admission{-1, {}, {}};
  admission.elsewhere = true;
  if (options_.voter != nullptr) {
    admission.leader = options_.voter->leader().leader;
    if (admission.leader == own_) admission.leader = {};
  }
  return join_answer(0, encode(admission));
}

void CoordinatorObserver::depose(StoreDesk& desk) {
  for (const Office::Event& event : office_.events()) desk.forget(event_key(event.number));
  office_.close();
  council_.reset();
  herald_.reset();
  for (const std::uint64_t client : clients_) desk.expel(client);
  clients_.clear();
  established_ = false;
  const std::lock_guard lock(mutex_);
  leading_ = false;
  ended_.notify_all();
}

// A mandate that lead() has left.
void CoordinatorObserver::take_office(StoreDesk& desk) {
  std::optional<Mandate> mandate;
  {
    const std::lock_guard lock(mutex_);
    mandate.swap(elected_);
  }
  if (!mandate || mandate->epoch <= office_.epoch()) return;
  if (office_.open()) depose(desk);
  inherit(*mandate);
  const std::lock_guard lock(mutex_);
  leading_ = true;
}

void CoordinatorObserver::inherit(const Mandate& mandate) {
  const TimePoint now = steady_.now();
  Inheritance inheritance;
  inheritance.known = mandate.known.leadership;
  inheritance.heard = now - mandate.heard_ago + slack();
  inheritance.host_place = mandate.place;
  std::vector<Delegate> members = mandate.known.leadership.council;
  inheritance.lost = fmt::format(
      "the launcher on host {}, which led the job, is lost: not heard of for {:.1f} s; host {} leads now",
      members.empty() ? "?" : members.front().host, std::chrono::duration<double>(mandate.heard_ago).count(),
      mandate.host);
  std::stable_partition(members.begin(), members.end(),
                        [&](const Delegate& one) { return one.incarnation == options_.incarnation; });
  office_.inherit(mandate.epoch, inheritance, now);
  council_.emplace(mandate.epoch, std::move(members), options_.lease + slack());
  establish_until_ = boot_.now() + kEstablish;
  established_ = false;
  tell_leadership_ = true;
  send_herald();
}

// To where newcomers look for the job, unless that is here.
void CoordinatorObserver::send_herald() {
  if (options_.meeting_point.port == 0 || options_.meeting_point == own_) return;
  StoreClientOptions store;
  store.token = options_.token;
  store.insecure = options_.insecure;
  store.job = options_.job;
  store.role = "launcher";
  try {
    herald_ =
        std::make_unique<Herald>(options_.meeting_point, std::move(store), Claim{office_.epoch(), own_});
  } catch (const std::system_error&) {
    // No thread can be had now: tried again when the council is looked at.
  }
}

// False when this one does not lead any more.
bool CoordinatorObserver::keep_office(StoreDesk& desk) {
  // What has been said is said: who has not heard the end yet may still do so.
  if (!council_ || (office_.membership().over() && office_.next() == nullptr)) return true;
  const TimePoint now = boot_.now();
  const bool followed = council_->leads_until() > now;
  established_ = established_ || followed;
  if (office_.membership().abdicated() || (!followed && (established_ || now >= establish_until_))) {
    depose(desk);
    return false;
  }
  if (!established_ || now < next_look_) return true;
  next_look_ = now + kLookAtCouncil;
  if (!herald_ && office_.epoch() > 1) send_herald();
  tell_leadership_ =
      council_->adapt(office_.membership().delegates(options_.incarnation, council_->members()),
                      office_.next_event() + 1, now) ||
      tell_leadership_;
  office_.set_successors(council_->has_successors());
  return true;
}

void CoordinatorObserver::found_council() {
  std::vector<Delegate> members = office_.membership().delegates(options_.incarnation, {});
  members.insert(members.begin(), Delegate{options_.incarnation, options_.host, own_});
  // What tells of it is told next.
  council_.emplace(office_.epoch(), std::move(members), options_.lease + slack(), boot_.now(),
                   office_.next_event() + 1);
  established_ = true;
  office_.set_successors(council_->has_successors());
  tell_leadership_ = true;
}

// --- news ---------------------------------------------------------------------------------------------

void CoordinatorObserver::publish(StoreDesk& desk, TimePoint now) {
  for (const std::uint64_t client : office_.take_lost()) desk.expel(client);
  if (office_.forms() && options_.voter != nullptr && !council_) found_council();
  if (!keep_office(desk)) return;
  if (std::exchange(tell_leadership_, false)) {
    Leadership leadership = office_.membership().leadership();
    leadership.epoch = office_.epoch();
    leadership.council = council_->members();
    tell(desk, office_.tell(leadership, now));
  }
  while (office_.next() != nullptr && established_or_alone()) {
    // A round that begins must be known to whoever may succeed, and so must those who take part in it.
    if (std::holds_alternative<Start>(*office_.next()) && council_ && !council_->decided(office_.formed_at()))
      break;
    tell(desk, office_.tell_next(now));
  }
  while (!office_.events().empty() && now - office_.events().front().at > keep_events_) {
    desk.forget(event_key(office_.events().front().number));
    office_.forget_first();
  }
  if (!office_.membership().over() || office_.next() != nullptr) return;
  const std::size_t left = office_.unheard();
  const std::lock_guard lock(mutex_);
  over_ = true;
  unheard_ = left;
  ended_.notify_all();
}

// --- from other threads -----------------------------------------------------------------------------------

void CoordinatorObserver::lead(Mandate mandate) {
  const std::lock_guard lock(mutex_);
  elected_ = std::move(mandate);
  leading_ = true;
}

bool CoordinatorObserver::leads() const {
  const std::lock_guard lock(mutex_);
  return leading_ && !over_;
}

CoordinatorObserver::End CoordinatorObserver::wait_until_over(const Deadline& deadline) const {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return (over_ && unheard_ == 0) || !leading_; };
  if (deadline.is_never())
    ended_.wait(lock, is_over);
  else if (!ended_.wait_until(lock, *deadline.at(), is_over))
    return over_ ? End::over : End::not_yet;
  return over_ ? End::heard : End::elsewhere;
}

}  // namespace dtrain::rendezvous
