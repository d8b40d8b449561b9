// Majorities, and the bytes of what is asked and answered.
#include "cluster/quorum/voters.h"

#include <algorithm>
#include <functional>

#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {
namespace {

void put(wire::ByteWriter& out, const Endpoint& endpoint) {
  out.text(std::string_view(endpoint.host).substr(0, kMaxHostBytes));
  out.u16(endpoint.port);
}

Endpoint take_endpoint(wire::ByteReader& in) {
  Endpoint endpoint;
  endpoint.host = in.text(kMaxHostBytes);
  endpoint.port = in.u16();
  return endpoint;
}

bool has(const std::vector<Voter>& eligible, std::uint64_t instance_id) {
  return std::any_of(eligible.begin(), eligible.end(),
                     [&](const Voter& one) { return one.instance_id == instance_id; });
}

}  // namespace

std::string encode(const VoteRequest& request) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(request.term);
  out.u64(request.instance_id);
  out.u64(request.known_term);
  out.u64(request.known_events);
  out.u8(request.probe ? 1 : 0);
  return bytes;
}

std::string encode(const VoteAnswer& answer) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u8(answer.granted ? 1 : 0);
  out.u64(answer.instance_id);
  out.u64(answer.current_term);
  out.u64(static_cast<std::uint64_t>(answer.heard_ago.count()));
  out.u64(answer.leads);
  put(out, answer.leader);
  return bytes;
}

std::string encode(const LeaseGrant& grant) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(static_cast<std::uint64_t>(grant.stamp));
  out.u64(static_cast<std::uint64_t>(grant.lasts.count()));
  return bytes;
}

std::string encode(const Ack& ack) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(ack.term);
  out.u64(static_cast<std::uint64_t>(ack.stamp));
  out.u64(ack.match_index);
  return bytes;
}

std::string encode(const LeaderAnnouncement& announcement) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(announcement.term);
  put(out, announcement.leader);
  return bytes;
}

std::optional<VoteRequest> decode_vote_request(std::string_view bytes) {
  wire::ByteReader in(bytes);
  VoteRequest request;
  request.term = in.u64();
  request.instance_id = in.u64();
  request.known_term = in.u64();
  request.known_events = in.u64();
  const std::uint8_t probe = in.u8();
  request.probe = probe == 1;
  return in.finished() && probe <= 1 ? std::optional(request) : std::nullopt;
}

std::optional<VoteAnswer> decode_vote_answer(std::string_view bytes) {
  wire::ByteReader in(bytes);
  VoteAnswer answer;
  const std::uint8_t granted = in.u8();
  answer.granted = granted == 1;
  answer.instance_id = in.u64();
  answer.current_term = in.u64();
  answer.heard_ago = Duration(static_cast<std::int64_t>(in.u64()));
  answer.leads = in.u64();
  answer.leader = take_endpoint(in);
  const bool well = in.finished() && granted < 2 && answer.heard_ago >= Duration::zero();
  return well ? std::optional(std::move(answer)) : std::nullopt;
}

std::optional<LeaseGrant> decode_grant(std::string_view bytes) {
  if (bytes.empty()) return LeaseGrant{};
  wire::ByteReader in(bytes);
  LeaseGrant grant;
  grant.stamp = static_cast<std::int64_t>(in.u64());
  grant.lasts = Duration(static_cast<std::int64_t>(in.u64()));
  return in.finished() && grant.lasts >= Duration::zero() ? std::optional(grant) : std::nullopt;
}

std::optional<Ack> decode_ack(std::string_view bytes) {
  wire::ByteReader in(bytes);
  Ack ack;
  ack.term = in.u64();
  ack.stamp = static_cast<std::int64_t>(in.u64());
  ack.match_index = in.u64();
  return in.finished() ? std::optional(ack) : std::nullopt;
}

std::optional<LeaderAnnouncement> decode_announcement(std::string_view bytes) {
  wire::ByteReader in(bytes);
  LeaderAnnouncement claim;
  claim.term = in.u64();
  claim.leader = take_endpoint(in);
  return in.finished() ? std::optional(std::move(claim)) : std::nullopt;
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
  // Whoever could have been elected by the voters before has heard that it is no voter any more.
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
