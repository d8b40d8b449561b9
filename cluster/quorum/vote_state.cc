// One vote a term, and none while a leader is followed.
#include "cluster/quorum/vote_state.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace dtrain::rendezvous {
namespace {

// For whoever has the vote to collect the others'. It may ask again: those whose votes it needs are rarely
// free all at once.
constexpr Duration kLoyalty = std::chrono::milliseconds(700);

}  // namespace

void VoteState::set_leader(const Endpoint& leader) {
  const std::lock_guard lock(mutex_);
  server_ = leader;
}

VoteAnswer VoteState::answer(const VoteRequest& request, TimePoint now) {
  const std::lock_guard lock(mutex_);
  VoteAnswer answer;
  const bool free = request.term > current_term() && !loyal(now, request.instance_id);
  const bool knows_enough =
      std::tie(request.known_term, request.known_events) >= std::tie(known_term_, known_events_);
  answer.granted = free && knows_enough && known_term_ != 0;
  if (answer.granted && !request.probe) {
    answer.heard_ago = std::max(now - heard_at_, Duration::zero());
    current_term_ = request.term;
    loyal_until_ = now + kLoyalty;
    voted_for_ = request.instance_id;
  }
  answer.current_term = current_term();
  // Whom it followed when the vote was given leads no more.
  if (leader_.term >= current_term_) {
    answer.leads = leader_.term;
    answer.leader = leader_.leader;
  }
  return answer;
}

VoteRequest VoteState::stand(std::uint64_t instance_id, TimePoint now, bool probe) {
  const std::lock_guard lock(mutex_);
  if (loyal(now, instance_id)) return {};
  const std::uint64_t term = std::max(current_term(), heard_of_) + 1;
  if (!probe) candidacy_ = heard_of_ = term;
  return {term, instance_id, known_term_, known_events_, probe};
}

bool VoteState::settle(bool elected, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t term = std::exchange(candidacy_, 0);
  if (!elected || term < current_term_) return false;
  current_term_ = term;
  loyal_until_ = now + kLoyalty;  // until it leads
  voted_for_ = 0;
  return true;
}

bool VoteState::may_follow(std::uint64_t term) const {
  const std::lock_guard lock(mutex_);
  return term >= current_term();
}

void VoteState::hear_of(std::uint64_t term) {
  const std::lock_guard lock(mutex_);
  heard_of_ = std::max(heard_of_, term);
}

void VoteState::granted(TimePoint now) {
  const std::lock_guard lock(mutex_);
  heard_at_ = std::max(heard_at_, now);
}

Duration VoteState::heard_ago(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return std::max(now - heard_at_, Duration::zero());
}

std::size_t VoteState::voters() const {
  const std::lock_guard lock(mutex_);
  return voters_;
}

void VoteState::hear(const LeaderAnnouncement& announcement) {
  const std::lock_guard lock(mutex_);
  if (announcement.term > leader_.term && announcement.term >= current_term_) leader_ = announcement;
}

LeaderAnnouncement VoteState::leader() const {
  const std::lock_guard lock(mutex_);
  return leader_;
}

}  // namespace dtrain::rendezvous
