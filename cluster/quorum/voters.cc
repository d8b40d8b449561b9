// Majorities, and the bytes of what is asked and answered.
#include "cluster/quorum/voters.h"

#include <algorithm>
#include <functional>

#include "cluster/store/fields.h"

namespace dtrain::rendezvous {
namespace {

bool has(const std::vector<Voter>& eligible, std::uint64_t instance_id) {
  return std::any_of(eligible.begin(), eligible.end(),
                     [&](const Voter& one) { return one.instance_id == instance_id; });
}

}  // namespace

template <class Fields>
void describe(Fields& f, typename Fields::template Of<VoteRequest>& request) {
  f(request.term, request.instance_id, request.known_term, request.known_events, request.probe);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<VoteAnswer>& answer) {
  f(answer.granted, answer.instance_id, answer.current_term, answer.heard_ago, answer.leads, answer.leader);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<LeaseGrant>& grant) {
  f(grant.stamp, grant.lasts);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Ack>& ack) {
  f(ack.term, ack.stamp, ack.match_index);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<LeaderAnnouncement>& announcement) {
  f(announcement.term, announcement.leader);
}

std::string encode(const VoteRequest& request) { return wire::write_fields(request); }
std::string encode(const VoteAnswer& answer) { return wire::write_fields(answer); }
std::string encode(const LeaseGrant& grant) { return wire::write_fields(grant); }
std::string encode(const Ack& ack) { return wire::write_fields(ack); }
std::string encode(const LeaderAnnouncement& announcement) { return wire::write_fields(announcement); }

std::optional<VoteRequest> decode_vote_request(std::string_view bytes) {
  return wire::read_fields<VoteRequest>(bytes);
}

std::optional<VoteAnswer> decode_vote_answer(std::string_view bytes) {
  auto answer = wire::read_fields<VoteAnswer>(bytes);
  return answer && answer->heard_ago >= Duration::zero() ? answer : std::nullopt;
}

std::optional<LeaseGrant> decode_grant(std::string_view bytes) {
  if (bytes.empty()) return LeaseGrant{};
  auto grant = wire::read_fields<LeaseGrant>(bytes);
  return grant && grant->lasts >= Duration::zero() ? grant : std::nullopt;
}

std::optional<Ack> decode_ack(std::string_view bytes) { return wire::read_fields<Ack>(bytes); }

std::optional<LeaderAnnouncement> decode_announcement(std::string_view bytes) {
  return wire::read_fields<LeaderAnnouncement>(bytes);
}

bool elects(const std::vector<Voter>& voters, std::uint64_t candidate,
            const std::vector<VoteAnswer>& answers) {
  const auto votes = std::count_if(answers.begin(), answers.end(), [&](const VoteAnswer& answer) {
    return answer.granted && answer.instance_id != candidate && has(voters, answer.instance_id);
  });
  return static_cast<std::size_t>(votes) + 1 >= voters.size() / 2 + 1;
}

Voters::Voters(std::uint64_t term, std::vector<Voter> members, Duration lease)
    : term_(term), members_(std::move(members)), lease_(lease) {
  for (const Voter& one : members_) seen_.push_back({one.instance_id, {}, 0});
}

Voters::Voters(std::uint64_t term, std::vector<Voter> members, Duration lease, TimePoint founded,
               std::uint64_t changed_at)
    : Voters(term, std::move(members), lease) {
  for (Seen& one : seen_) one.followed = founded;
  changed_at_ = changed_at;
  alone_ = !has_successors();
}

const Voters::Seen* Voters::seen(std::uint64_t instance_id) const {
  const auto found = std::find_if(seen_.begin(), seen_.end(),
                                  [&](const Seen& one) { return one.instance_id == instance_id; });
  return found == seen_.end() ? nullptr : &*found;
}

void Voters::hear(std::uint64_t instance_id, const Ack& ack, std::uint64_t told) {
  if (ack.term != term_ || ack.match_index > told) return;
  for (Seen& one : seen_) {
    if (one.instance_id != instance_id) continue;
    one.events = std::max(one.events, ack.match_index);
    const TimePoint stamp{Duration(ack.stamp)};
    if (ack.stamp != 0 && (!one.followed || stamp > *one.followed)) one.followed = stamp;
  }
  // Anyone who could have been elected by the former voters has heard that it is no voter any more.
  if (!has_successors() && decided(changed_at_)) alone_ = true;
}

TimePoint Voters::leads_until() const {
  if (alone_) return TimePoint::max();
  std::vector<TimePoint> followed;
  for (const Seen& one : seen_) {
    if (one.followed && one.instance_id != members_.front().instance_id) followed.push_back(*one.followed);
  }
  const std::size_t needed = majority() - 1;
  if (needed == 0) return TimePoint::max();
  if (followed.size() < needed) return TimePoint::min();
  std::nth_element(followed.begin(), followed.begin() + static_cast<std::ptrdiff_t>(needed - 1),
                   followed.end(), std::greater<>());
  return followed[needed - 1] + lease_;
}

bool Voters::decided(std::uint64_t events) const {
  if (alone_) return true;
  const auto heard =
      std::count_if(seen_.begin(), seen_.end(), [&](const Seen& one) { return one.events >= events; });
  return static_cast<std::size_t>(heard) >= majority();
}

bool Voters::adapt(const std::vector<Voter>& present, std::uint64_t events, TimePoint now) {
  if (!decided(changed_at_)) return false;
  const auto gone = std::find_if(members_.begin() + 1, members_.end(),
                                 [&](const Voter& one) { return !has(present, one.instance_id); });
  const auto extra = std::find_if(present.begin(), present.end(),
                                  [&](const Voter& one) { return !has(members_, one.instance_id); });
  Voters changed = *this;
  if (gone != members_.end()) {
    changed.leave_out(gone->instance_id);
  } else if (extra != present.end() && members_.size() < kMostVoters) {
    changed.members_.push_back(*extra);
    changed.seen_.push_back({extra->instance_id, std::nullopt, 0});
    if (changed.has_successors()) changed.alone_ = false;
  } else {
    return false;
  }
  // Of four it takes one follower more than of three, and a newcomer follows only once it has heard.
  if (changed.leads_until() <= now) return false;
  changed.changed_at_ = events;
  *this = std::move(changed);
  return true;
}

void Voters::leave_out(std::uint64_t instance_id) {
  std::erase_if(seen_, [&](const Seen& one) { return one.instance_id == instance_id; });
  std::erase_if(members_, [&](const Voter& one) { return one.instance_id == instance_id; });
}

}  // namespace dtrain::rendezvous
