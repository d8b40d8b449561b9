// As the leader: for as long as a majority follows.
#include <algorithm>
#include <system_error>
#include <utility>

#include "cluster/quorum/leadership.h"

namespace dtrain::rendezvous {
namespace {

// A successor that too few follow by then does not lead.
constexpr Duration kEstablish = std::chrono::seconds(5);
constexpr Duration kLookAtVoters = std::chrono::milliseconds(50);
// Twice as long as a voter is silent.
constexpr Duration kMostSlack = std::chrono::milliseconds(500);

}  // namespace

// Without this every lease would be so much shorter.
Duration Leadership::slack() const noexcept { return std::min(options_.lease / 8, kMostSlack); }

void Leadership::found(const std::vector<Voter>& others, std::uint64_t events, TimePoint now) {
  const std::lock_guard lock(mutex_);
  std::vector<Voter> members{{options_.instance_id, options_.host, own_}};
  members.insert(members.end(), others.begin(), others.end());
  led_.emplace(
      Led{Voters(term_, std::move(members), options_.lease + slack(), now, events), true, {}, {}, {}});
}

bool Leadership::lead(Election election, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (election.term <= term_) return false;
  term_ = election.term;
  std::stable_partition(election.voters.begin(), election.voters.end(),
                        [this](const Voter& one) { return one.instance_id == options_.instance_id; });
  Voters voters(term_, std::move(election.voters), options_.lease + slack());
  led_.emplace(Led{std::move(voters), false, now + kEstablish, {}, {}});
  announce(*led_);
  return true;
}

std::uint64_t Leadership::term() const {
  const std::lock_guard lock(mutex_);
  return term_;
}

// To where newcomers look for the leader, unless that is here.
void Leadership::announce(Led& led) const {
  if (options_.meeting_point.port == 0 || options_.meeting_point == own_) return;
  try {
    led.announcer =
        std::make_unique<Announcer>(options_.meeting_point, options_.store, LeaderAnnouncement{term_, own_});
  } catch (const std::system_error&) {
    // No thread can be had now: tried again when the voters are looked at.
  }
}

LeaseGrant Leadership::renew(TimePoint now) {
  const std::lock_guard lock(mutex_);
  const std::int64_t stamp = now.time_since_epoch().count();
  if (!led_) return {stamp, Duration::max()};
  const TimePoint until = led_->voters.leads_until();
  // As good as heard from a leader, by its own session, which may be cut off.
  if (until > now) heard_at_ = std::max(heard_at_, now);
  if (until == TimePoint::max()) return {stamp, Duration::max()};
  return {stamp, until > now ? until - now : Duration::zero()};
}

void Leadership::acknowledged(std::uint64_t instance_id, std::string_view ack, std::uint64_t told) {
  const auto shown = decode_ack(ack);
  const std::lock_guard lock(mutex_);
  if (led_ && shown) led_->voters.hear(instance_id, *shown, told);
}

bool Leadership::holds(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!led_) return false;
  const bool followed = led_->voters.leads_until() > now;
  led_->established = led_->established || followed;
  return followed || (!led_->established && now < led_->establish_until);
}

bool Leadership::adapt(const std::function<std::vector<Voter>(const std::vector<Voter>& members)>& present,
                       std::uint64_t events, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!led_ || !led_->established || now < led_->next_look) return false;
  led_->next_look = now + kLookAtVoters;
  if (!led_->announcer && term_ > 1) announce(*led_);
  return led_->voters.adapt(present(led_->voters.members()), events, now);
}

void Leadership::resign() {
  std::optional<Led> led;  // its announcer's thread is waited for without the lock
  const std::lock_guard lock(mutex_);
  led.swap(led_);
}

bool Leadership::decided(std::uint64_t events) const {
  const std::lock_guard lock(mutex_);
  return !led_ || (led_->established && led_->voters.decided(events));
}

}  // namespace dtrain::rendezvous
