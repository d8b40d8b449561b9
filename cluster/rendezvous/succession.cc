// Majorities, and the bytes of what is asked and answered.
#include "cluster/rendezvous/succession.h"

#include <algorithm>
#include <functional>

#include "cluster/rendezvous/messages.h"
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

bool has(const std::vector<Delegate>& delegates, std::uint64_t incarnation) {
  return std::any_of(delegates.begin(), delegates.end(),
                     [&](const Delegate& one) { return one.incarnation == incarnation; });
}

}  // namespace

std::string encode(const VoteRequest& request) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(request.epoch);
  out.u64(request.incarnation);
  out.u64(request.known_epoch);
  out.u64(request.known_events);
  out.u8(request.probe ? 1 : 0);
  return bytes;
}

std::string encode(const VoteAnswer& answer) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u8(answer.granted ? 1 : 0);
  out.u64(answer.incarnation);
  out.u64(answer.promised);
  out.u64(static_cast<std::uint64_t>(answer.heard_ago.count()));
  out.u64(answer.leads);
  put(out, answer.leader);
  return bytes;
}

std::string encode(const Grant& grant) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(static_cast<std::uint64_t>(grant.stamp));
  out.u64(static_cast<std::uint64_t>(grant.lasts.count()));
  return bytes;
}

std::string encode(const Echo& echo) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(echo.epoch);
  out.u64(static_cast<std::uint64_t>(echo.stamp));
  out.u64(echo.events);
  return bytes;
}

std::string encode(std::uint64_t epoch, const Endpoint& leader) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  out.u64(epoch);
  put(out, leader);
  return bytes;
}

std::optional<VoteRequest> decode_vote_request(std::string_view bytes) {
  wire::ByteReader in(bytes);
  VoteRequest request;
  request.epoch = in.u64();
  request.incarnation = in.u64();
  request.known_epoch = in.u64();
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
  answer.incarnation = in.u64();
  answer.promised = in.u64();
  answer.heard_ago = Duration(static_cast<std::int64_t>(in.u64()));
  answer.leads = in.u64();
  answer.leader = take_endpoint(in);
  const bool well = in.finished() && granted < 2 && answer.heard_ago >= Duration::zero();
  return well ? std::optional(std::move(answer)) : std::nullopt;
}

std::optional<Grant> decode_grant(std::string_view bytes) {
  if (bytes.empty()) return Grant{};
  wire::ByteReader in(bytes);
  Grant grant;
  grant.stamp = static_cast<std::int64_t>(in.u64());
  grant.lasts = Duration(static_cast<std::int64_t>(in.u64()));
  return in.finished() && grant.lasts >= Duration::zero() ? std::optional(grant) : std::nullopt;
}

std::optional<Echo> decode_echo(std::string_view bytes) {
  wire::ByteReader in(bytes);
  Echo echo;
  echo.epoch = in.u64();
  echo.stamp = static_cast<std::int64_t>(in.u64());
  echo.events = in.u64();
  return in.finished() ? std::optional(echo) : std::nullopt;
}

std::optional<Claim> decode_claim(std::string_view bytes) {
  wire::ByteReader in(bytes);
  Claim claim;
  claim.epoch = in.u64();
  claim.leader = take_endpoint(in);
  return in.finished() ? std::optional(std::move(claim)) : std::nullopt;
}

bool elects(const std::vector<Delegate>& council, std::uint64_t candidate,
            const std::vector<VoteAnswer>& answers) {
  const auto votes = std::count_if(answers.begin(), answers.end(), [&](const VoteAnswer& answer) {
    return answer.granted && answer.incarnation != candidate && has(council, answer.incarnation);
  });
  return static_cast<std::size_t>(votes) + 1 >= council.size() / 2 + 1;
}

Council::Council(std::uint64_t epoch, std::vector<Delegate> members, Duration lease)
    : epoch_(epoch), members_(std::move(members)), lease_(lease) {
  for (const Delegate& one : members_) seen_.push_back({one.incarnation, {}, 0});
}

Council::Council(std::uint64_t epoch, std::vector<Delegate> members, Duration lease, TimePoint founded,
                 std::uint64_t changed_at)
    : Council(epoch, std::move(members), lease) {
  for (Seen& one : seen_) one.followed = founded;
  changed_at_ = changed_at;
  alone_ = !has_successors();
}

const Council::Seen* Council::seen(std::uint64_t incarnation) const {
  const auto found = std::find_if(seen_.begin(), seen_.end(),
                                  [&](const Seen& one) { return one.incarnation == incarnation; });
  return found == seen_.end() ? nullptr : &*found;
}

void Council::hear(std::uint64_t incarnation, const Echo& echo, std::uint64_t told) {
  if (echo.epoch != epoch_ || echo.events > told) return;
  for (Seen& one : seen_) {
    if (one.incarnation != incarnation) continue;
    one.events = std::max(one.events, echo.events);
    const TimePoint stamp{Duration(echo.stamp)};
    if (echo.stamp != 0 && (!one.followed || stamp > *one.followed)) one.followed = stamp;
  }
  // Whoever could have been elected by the council before has heard that there is no such council any more.
  if (!has_successors() && decided(changed_at_)) alone_ = true;
}

TimePoint Council::leads_until() const {
  if (alone_) return TimePoint::max();
  std::vector<TimePoint> followed;
  for (const Seen& one : seen_) {
    if (one.followed && one.incarnation != members_.front().incarnation) followed.push_back(*one.followed);
  }
  const std::size_t needed = majority() - 1;
  if (needed == 0) return TimePoint::max();
  if (followed.size() < needed) return TimePoint::min();
  std::nth_element(followed.begin(), followed.begin() + static_cast<std::ptrdiff_t>(needed - 1),
                   followed.end(), std::greater<>());
  return followed[needed - 1] + lease_;
}

bool Council::decided(std::uint64_t events) const {
  if (alone_) return true;
  const auto heard =
      std::count_if(seen_.begin(), seen_.end(), [&](const Seen& one) { return one.events >= events; });
  return static_cast<std::size_t>(heard) >= majority();
}

bool Council::adapt(const std::vector<Delegate>& present, std::uint64_t events, TimePoint now) {
  if (!decided(changed_at_)) return false;
  const auto gone = std::find_if(members_.begin() + 1, members_.end(),
                                 [&](const Delegate& one) { return !has(present, one.incarnation); });
  const auto extra = std::find_if(present.begin(), present.end(),
                                  [&](const Delegate& one) { return !has(members_, one.incarnation); });
  Council changed = *this;
  if (gone != members_.end()) {
    changed.leave_out(gone->incarnation);
  } else if (extra != present.end() && members_.size() < kMostCouncil) {
    changed.members_.push_back(*extra);
    changed.seen_.push_back({extra->incarnation, std::nullopt, 0});
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

void Council::leave_out(std::uint64_t incarnation) {
  std::erase_if(seen_, [&](const Seen& one) { return one.incarnation == incarnation; });
  std::erase_if(members_, [&](const Delegate& one) { return one.incarnation == incarnation; });
}

}  // namespace dtrain::rendezvous
