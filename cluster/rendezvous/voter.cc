// One vote an epoch, and none while a leader is followed.
#include "cluster/rendezvous/voter.h"

#include <algorithm>
#include <tuple>

namespace dtrain::rendezvous {
namespace {

// For whoever has the vote to collect the others'.
constexpr Duration kLoyalty = std::chrono::milliseconds(700);

}  // namespace

void Voter::refuse_former(Session& session) const {
  if (session.joining() || session.ended()) return;
  if (session.epoch() != 0 && session.epoch() < promised_)
    session.interrupt("this launcher has voted for another leader");
}

void Voter::note(const Session& session, TimePoint now) {
  heard_at_ = std::max(heard_at_, session.heard_at());
  known_epoch_ = session.known().epoch;
  known_events_ = session.known().events;
  if (session.joining() || session.interrupted() || session.ended() || session.epoch() < promised_) return;
  promised_ = std::max(promised_, session.epoch());
  if (session.lease_ends() <= now) return;
  loyal_until_ = std::max(loyal_until_, session.lease_ends());
  if (session.epoch() != 0) leader_ = {session.epoch(), server_};
}

void Voter::set_leader(const Endpoint& leader) {
  const std::lock_guard lock(mutex_);
  server_ = leader;
}

VoteAnswer Voter::answer(const VoteRequest& request, TimePoint now) {
  const std::lock_guard lock(mutex_);
  VoteAnswer answer;
  if (request.epoch > promised_ && !loyal(now) && known_epoch_ != 0 &&
      std::tie(request.known_epoch, request.known_events) >= std::tie(known_epoch_, known_events_)) {
    answer.granted = true;
    answer.heard_ago = std::max(now - heard_at_, Duration::zero());
    promised_ = request.epoch;
    loyal_until_ = now + kLoyalty;
  }
  answer.promised = promised_;
  // Whom it followed when the vote was given leads no more.
  if (leader_.epoch >= promised_) {
    answer.leads = leader_.epoch;
    answer.leader = leader_.leader;
  }
  return answer;
}

VoteRequest Voter::stand(std::uint64_t incarnation, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (loyal(now)) return {};
  ++promised_;
  return {promised_, incarnation, known_epoch_, known_events_};
}

Duration Voter::heard_ago(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return std::max(now - heard_at_, Duration::zero());
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
