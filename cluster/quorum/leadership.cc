// As a follower, a voter and a candidate: one vote a term, and none while a leader is followed.
#include "cluster/quorum/leadership.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace dtrain::rendezvous {
namespace {

// For the one that has the vote to collect the others'. It may ask again: those whose votes it needs are
// rarely free all at once.
constexpr Duration kLoyalty = std::chrono::milliseconds(700);
// Candidates stand one after the other, so that votes are not divided.
constexpr Duration kTurn = std::chrono::milliseconds(300);
constexpr int kAskLostLeader = 4;  // one attempt in so many

}  // namespace

void Leadership::serve_at(const Endpoint& own) {
  const std::lock_guard lock(mutex_);
  own_ = own;
}

// --- watch ------------------------------------------------------------------------------------------------

void Leadership::approach(const Endpoint& server) {
  const std::lock_guard lock(mutex_);
  server_ = server;
  searching_since_.reset();
}

void Leadership::forget() {
  const std::lock_guard lock(mutex_);
  followed_ = known_term_ = known_events_ = 0;
  stamp_ = 0;
  known_voters_.clear();
}

Leadership::Followed Leadership::follow(std::uint64_t term) {
  const std::lock_guard lock(mutex_);
  if (term < voted_term()) return Followed::refused;
  current_term_ = term;
  if (followed_ == term) return Followed::as_before;
  followed_ = term;
  stamp_ = 0;
  return Followed::anew;
}

bool Leadership::granted(const LeaseGrant& grant, TimePoint ends, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (followed_ < voted_term()) return false;
  // One that has resigned shows no time, and will grant nothing by it.
  if (grant.stamp != 0) heard_at_ = std::max(heard_at_, now);
  stamp_ = std::max(stamp_, grant.stamp);
  if (ends <= now) return true;
  loyal_until_ = std::max(loyal_until_, ends);
  voted_for_ = 0;
  newest_ = {followed_, server_};
  return true;
}

bool Leadership::deserted() const {
  const std::lock_guard lock(mutex_);
  return followed_ != 0 && followed_ < voted_term();
}

void Leadership::hear(std::uint64_t events, const std::vector<Voter>& voters) {
  const std::lock_guard lock(mutex_);
  // What it hears after its vote, no candidate it has voted for knows.
  if (followed_ < voted_term()) return;
  known_term_ = followed_;
  known_events_ = events;
  known_voters_ = voters;
}

// What it knows may still be the former leader's, of which this one has told nothing.
std::string Leadership::ack() const {
  const std::lock_guard lock(mutex_);
  if (followed_ == 0) return {};
  return encode(Ack{followed_, stamp_, known_term_ == followed_ ? known_events_ : 0});
}

std::uint64_t Leadership::known_term() const {
  const std::lock_guard lock(mutex_);
  return known_term_;
}

std::size_t Leadership::known_voters() const {
  const std::lock_guard lock(mutex_);
  return known_voters_.size();
}

Endpoint Leadership::leader() const {
  const std::lock_guard lock(mutex_);
  return newest_.leader;
}

bool Leadership::superseded_by(const LeaderAnnouncement& announcement) {
  const std::lock_guard lock(mutex_);
  if (announcement.term > newest_.term && announcement.term >= current_term_) newest_ = announcement;
  return announcement.term > term_;
}

// --- acquire ----------------------------------------------------------------------------------------------

Search Leadership::acquire(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!searching_since_) searching_since_ = now;
  Search search;
  if (better(newest_.term)) search.leaders.push_back(newest_.leader);
  const auto own = std::find_if(known_voters_.begin(), known_voters_.end(),
                                [this](const Voter& one) { return one.instance_id == options_.instance_id; });
  // The leader, who is the first of them, need not be waited for.
  const auto turns = std::max<std::ptrdiff_t>(own - known_voters_.begin(), 1) - 1;
  request_ = {0, options_.instance_id, followed_, 0};
  if (own != known_voters_.end() && now - *searching_since_ >= turns * kTurn)
    if (const VoteRequest probe = stand(now, true); probe.term != 0) request_ = probe;
  const bool all = attempts_++ % kAskLostLeader == kAskLostLeader - 1;
  for (const Voter& one : known_voters_) {
    if (one.instance_id != options_.instance_id && (all || &one != known_voters_.data()))
      search.others.push_back(one.at);
  }
  search.request = request_;
  search.votes = known_voters_.size() / 2;
  asked_ = search.others;
  return search;
}

Search Leadership::answered(const std::vector<VoteAnswer>& answers, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Search search;
  for (const VoteAnswer& answer : answers) heard_of_ = std::max(heard_of_, answer.current_term);
  const bool elected = elects(known_voters_, options_.instance_id, answers);
  if (candidacy_ != 0 && settle(elected, now)) {
    Duration heard_ago = std::max(now - heard_at_, Duration::zero());
    for (const VoteAnswer& answer : answers) {
      if (answer.granted) heard_ago = std::min(heard_ago, answer.heard_ago);
    }
    search.elected = Election{request_.term, heard_ago, known_voters_};
    return search;
  }
  for (const VoteAnswer& answer : answers) {
    if (better(answer.leads)) search.leaders.push_back(answer.leader);
  }
  if (!search.leaders.empty() || !request_.probe || !elected) return search;
  request_ = stand(now, false);
  if (request_.term == 0) return search;
  search.request = request_;
  search.others = asked_;
  search.votes = known_voters_.size() / 2;
  return search;
}

VoteAnswer Leadership::answer(const VoteRequest& request, TimePoint now) {
  const std::lock_guard lock(mutex_);
  VoteAnswer answer;
  answer.instance_id = options_.instance_id;
  if (led_) {
    answer.current_term = answer.leads = term_;
    answer.leader = own_;
    return answer;
  }
  const bool free = request.term > voted_term() && !loyal(now, request.instance_id);
  const bool knows_enough =
      std::tie(request.known_term, request.known_events) >= std::tie(known_term_, known_events_);
  answer.granted = free && knows_enough && known_term_ != 0;
  if (answer.granted && !request.probe) {
    answer.heard_ago = std::max(now - heard_at_, Duration::zero());
    current_term_ = request.term;
    loyal_until_ = now + kLoyalty;
    voted_for_ = request.instance_id;
  }
  answer.current_term = voted_term();
  // Whom it followed when the vote was given leads no more.
  if (newest_.term >= current_term_) {
    answer.leads = newest_.term;
    answer.leader = newest_.leader;
  }
  return answer;
}

// This launcher would lead: the term for that, which it has not voted in, nor another of which it has heard.
// 0: it follows a leader, or has just voted for another one. A probe promises nothing; else it has voted for
// itself.
VoteRequest Leadership::stand(TimePoint now, bool probe) {
  if (loyal(now, options_.instance_id)) return {};
  const std::uint64_t term = std::max(voted_term(), heard_of_) + 1;
  if (!probe) candidacy_ = heard_of_ = term;
  return {term, options_.instance_id, known_term_, known_events_, probe};
}

// The vote that it stood for is over; true when it leads now. Not elected, it leads nobody by its vote for
// itself, which binds nobody. Nor does it lead where it has voted for a later term meanwhile: its own vote
// would count for both.
bool Leadership::settle(bool elected, TimePoint now) {
  const std::uint64_t term = std::exchange(candidacy_, 0);
  if (!elected || term < current_term_) return false;
  current_term_ = term;
  loyal_until_ = now + kLoyalty;  // until it leads
  voted_for_ = 0;
  return true;
}

}  // namespace dtrain::rendezvous
