// One vote an epoch, and none while a leader is followed.
#include "cluster/rendezvous/voter.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace dtrain::rendezvous {
namespace {

// For whoever has the vote to collect the others'. It may ask again: those whose votes it needs are rarely
// free all at once.
constexpr Duration kLoyalty = std::chrono::milliseconds(700);

}  // namespace

void Voter::refuse_former(Session& session) const {
  if (session.joining() || session.ended()) return;
  if (session.epoch() != 0 && session.epoch() < promised())
    session.interrupt("this launcher has voted for another leader");
}

void Voter::note(const Session& session, TimePoint now) {
  heard_at_ = std::max(heard_at_, session.heard_at());
  known_epoch_ = session.known().epoch;
  known_events_ = session.known().events;
  council_ = session.known().leadership.council.size();
  if (session.joining() || session.interrupted() || session.ended() || session.epoch() < promised()) return;
  promised_ = session.epoch();
  if (session.lease_ends() <= now) return;
  loyal_until_ = std::max(loyal_until_, session.lease_ends());
  voted_for_ = 0;
  if (session.epoch() != 0) leader_ = {session.epoch(), server_};
}

void Voter::set_leader(const Endpoint& leader) {
  const std::lock_guard lock(mutex_);
  server_ = leader;
}

VoteAnswer Voter::answer(const VoteRequest& request, TimePoint now) {
  const std::lock_guard lock(mutex_);
  VoteAnswer answer;
  const bool free = request.epoch > promised() && !loyal(now, request.incarnation);
  const bool knows_enough =
      std::tie(request.known_epoch, request.known_events) >= std::tie(known_epoch_, known_events_);
  answer.granted = free && knows_enough && known_epoch_ != 0;
  if (answer.granted && !request.probe) {
    answer.heard_ago = std::max(now - heard_at_, Duration::zero());
    promised_ = request.epoch;
    loyal_until_ = now + kLoyalty;
    voted_for_ = request.incarnation;
  }
  answer.promised = promised();
  // Whom it followed when the vote was given leads no more.
  if (leader_.epoch >= promised_) {
    answer.leads = leader_.epoch;
    answer.leader = leader_.leader;
  }
  return answer;
}

VoteRequest Voter::stand(std::uint64_t incarnation, TimePoint now, bool probe) {
  const std::lock_guard lock(mutex_);
  if (loyal(now, incarnation)) return {};
  const std::uint64_t epoch = std::max(promised(), heard_of_) + 1;
  if (!probe) candidacy_ = heard_of_ = epoch;
  return {epoch, incarnation, known_epoch_, known_events_, probe};
}

bool Voter::settle(bool elected, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t epoch = std::exchange(candidacy_, 0);
  if (!elected || epoch < promised_) return false;
  promised_ = epoch;
  loyal_until_ = now + kLoyalty;  // until it leads
  voted_for_ = 0;
  return true;
}

bool Voter::may_follow(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  return epoch >= promised();
}

void Voter::hear_of(std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  heard_of_ = std::max(heard_of_, epoch);
}

Duration Voter::heard_ago(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return std::max(now - heard_at_, Duration::zero());
}

std::size_t Voter::council() const {
  const std::lock_guard lock(mutex_);
  return council_;
}

void Voter::hear(const Claim& claim) {
  const std::lock_guard lock(mutex_);
  if (claim.epoch > leader_.epoch && claim.epoch >= promised_) leader_ = claim;
}

Claim Voter::leader() const {
  const std::lock_guard lock(mutex_);
  return leader_;
}

}  // namespace dtrain::rendezvous
