// Every HMAC covers a label that ends in NUL and the transcript: hello, magic, version, responder's nonce.
#include "cluster/net/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cluster/net/bytes.h"
#include "cluster/net/token.h"
#include "runtime/base/error.h"

namespace dtrain::net {
namespace {

using wire::ByteReader;
using wire::ByteWriter;

constexpr std::string_view kMagic = "DTST";
constexpr std::size_t kHelloPrefixBytes = 2;
constexpr std::size_t kUnprovenBytes = kChallengeBytes - Digest::kBytes;
constexpr std::size_t kVerdictPrefixBytes = 2;
constexpr std::string_view kResponderProof("dtrain stream 2: responder proof\0", 33);
constexpr std::string_view kInitiatorProof("dtrain stream 2: initiator proof\0", 33);
constexpr std::string_view kVerdict("dtrain stream 2: verdict\0", 25);
constexpr std::string_view kToResponderKey("dtrain stream 2: key to responder\0", 34);
constexpr std::string_view kToInitiatorKey("dtrain stream 2: key to initiator\0", 34);

std::string_view view(const Nonce& nonce) noexcept {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

std::string make_hello(const Identity& identity, const Nonce& nonce) {
  if (identity.service.size() > kMaxServiceBytes || identity.role.size() > kMaxRoleBytes)
    throw UsageError(
        fmt::format("connection: expected a job id of at most {} bytes and a role of at most {}, got {} and "
                    "{}",
                    kMaxServiceBytes, kMaxRoleBytes, identity.service.size(), identity.role.size()));
  std::string body;
  ByteWriter writer(body);
  writer.raw(kMagic);
  writer.u16(kProtocolVersion);
  writer.raw(view(nonce));
  writer.u32(static_cast<std::uint32_t>(identity.rank));
  writer.u8(static_cast<std::uint8_t>(identity.protection));
  writer.text(identity.service);
  writer.text(identity.role);
  std::string hello;
  ByteWriter(hello).u16(static_cast<std::uint16_t>(body.size()));
  return hello + body;
}

// nullopt unless `body` (a hello without its length) is well-formed; the version is checked before the rest
// is read.
std::optional<Identity> parse_hello(std::string_view body) {
  ByteReader reader(body);
  reader.raw(kMagic.size() + 2 + kNonceBytes);
  Identity identity;
  identity.rank = static_cast<std::int32_t>(reader.u32());
  const std::uint8_t protection = reader.u8();
  identity.protection = static_cast<Protection>(protection);
  identity.service = reader.text(kMaxServiceBytes);
  identity.role = reader.text(kMaxRoleBytes);
  if (!reader.finished() || protection > static_cast<std::uint8_t>(Protection::encrypt)) return std::nullopt;
  return identity;
}

// The keys of the two directions, as the initiator's stream uses them or the responder's.
SecureStream make_stream(UniqueFd fd, Protection protection, const MacKey& key, std::string_view transcript,
                         bool initiator) {
  const Digest to_responder = key.sign({kToResponderKey, transcript});
  const Digest to_initiator = key.sign({kToInitiatorKey, transcript});
  return {std::move(fd), FrameSealer(protection, (initiator ? to_responder : to_initiator).view()),
          FrameOpener(protection, (initiator ? to_initiator : to_responder).view())};
}

}  // namespace

Nonce make_nonce() {
  Nonce nonce;
  fill_random(nonce.data(), nonce.size());
  return nonce;
}

// --- the end that connects --------------------------------------------------------------------------------

Initiator::Initiator(std::string_view secret, const Identity& identity, const Nonce& nonce)
    : key_(secret), protection_(identity.protection), hello_(make_hello(identity, nonce)) {}

std::size_t Initiator::wants() const noexcept {
  if (state_ == State::want_challenge) return kChallengeBytes - buffer_.size();
  if (state_ != State::want_verdict) return 0;
  const std::size_t least = kVerdictPrefixBytes + Digest::kBytes;
  if (buffer_.size() < kVerdictPrefixBytes) return least - buffer_.size();
  return least + std::min<std::size_t>(ByteReader(buffer_).u16(), kMaxReasonBytes) - buffer_.size();
}

void Initiator::fail(std::string reason) {
  state_ = State::failed;
  reason_ = std::move(reason);
  buffer_ = {};
}

void Initiator::feed(std::string_view bytes, std::string& out) {
  buffer_.append(bytes.substr(0, wants()));
  // A foreign service is told apart early: it may never say as much as a challenge.
  const std::size_t known = std::min(buffer_.size(), kMagic.size());
  if (state_ == State::want_challenge && buffer_.substr(0, known) != kMagic.substr(0, known))
    return fail("what answers there is not dtrain");
  if (wants() > 0) return;
  if (state_ == State::want_challenge)
    take_challenge(out);
  else if (state_ == State::want_verdict)
    take_verdict();
}

void Initiator::take_challenge(std::string& out) {
  ByteReader reader(std::string_view(buffer_).substr(kMagic.size()));
  if (const std::uint16_t version = reader.u16(); version != kProtocolVersion)
    return fail(
        fmt::format("what answers there speaks protocol version {}, this program {}; run the same dtrain on "
                    "every node",
                    version, kProtocolVersion));
  const std::string_view challenge = buffer_;
  transcript_ = hello_;
  transcript_ += challenge.substr(0, kUnprovenBytes);
  if (!key_.verify({kResponderProof, transcript_}, challenge.substr(kUnprovenBytes)))
    return fail(
        "what answers there does not have this job's token: it belongs to another job, or DTRAIN_TOKEN "
        "differs "
        "between processes");
  out += key_.sign({kInitiatorProof, transcript_}).view();
  buffer_.clear();
  state_ = State::want_verdict;
}

void Initiator::take_verdict() {
  const std::string_view verdict = buffer_;
  const std::string_view said = verdict.substr(0, verdict.size() - Digest::kBytes);
  if (!key_.verify({kVerdict, transcript_, said}, verdict.substr(said.size())))
    return fail("what answers there cannot be verified: its answer was changed on the way");
  const std::string refusal(said.substr(kVerdictPrefixBytes));
  if (!refusal.empty()) return fail("it refused this process: " + refusal);
  state_ = State::accepted;
}

SecureStream Initiator::stream(UniqueFd fd) const {
  return make_stream(std::move(fd), protection_, key_, transcript_, true);
}

// --- the end that listens ---------------------------------------------------------------------------------

void Responder::refuse(std::string reason) {
  state_ = State::refused;
  reason_ = std::move(reason);
  buffer_ = {};
}

// Of the message being received; the hello's own length first, then what it announced.
std::size_t Responder::missing_bytes() const noexcept {
  if (state_ == State::want_proof) return Digest::kBytes - buffer_.size();
  if (buffer_.size() < kHelloPrefixBytes) return kHelloPrefixBytes - buffer_.size();
  return kHelloPrefixBytes + ByteReader(buffer_).u16() - buffer_.size();
}

void Responder::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty() && (state_ == State::want_hello || state_ == State::want_proof)) {
    const std::size_t step = std::min(missing_bytes(), bytes.size());
    buffer_.append(bytes.substr(0, step));
    bytes.remove_prefix(step);
    if (state_ == State::want_hello && buffer_.size() == kHelloPrefixBytes) {
      const std::size_t announced = kHelloPrefixBytes + ByteReader(buffer_).u16();
      if (announced > kMaxHelloBytes || announced == kHelloPrefixBytes)
        return refuse("a hello of impossible length");
      continue;
    }
    if (missing_bytes() > 0) continue;
    // Those who belong here wait for the verdict before they say anything else.
    if (state_ == State::want_proof && !bytes.empty()) return refuse("bytes after a proof");
    state_ == State::want_hello ? take_hello(out) : take_proof(out);
  }
}

void Responder::take_hello(std::string& out) {
  ByteReader reader(std::string_view(buffer_).substr(kHelloPrefixBytes));
  if (reader.raw(kMagic.size()) != kMagic) return refuse("a hello that is not dtrain's");
  std::string challenge(kMagic);
  ByteWriter writer(challenge);
  writer.u16(kProtocolVersion);
  writer.raw(view(nonce_));
  if (reader.u16() != kProtocolVersion) {
    // The other side learns our version and can say so; there is nothing to prove to it.
    out += challenge + std::string(Digest::kBytes, '\0');
    return refuse("a hello of another protocol version");
  }
  std::optional<Identity> identity = parse_hello(std::string_view(buffer_).substr(kHelloPrefixBytes));
  if (!identity) return refuse("a malformed hello");
  identity_ = std::move(*identity);
  transcript_ = buffer_ + challenge;
  out += challenge;
  out += key_.sign({kResponderProof, transcript_}).view();
  buffer_.clear();
  state_ = State::want_proof;
}

void Responder::take_proof(std::string& out) {
  if (!key_.verify({kInitiatorProof, transcript_}, buffer_)) return refuse("a proof made without our secret");
  buffer_ = {};
  std::string refusal = identity_.protection == protection_
                            ? admit_(identity_)
                            : fmt::format("it protects its messages by '{}', this side by '{}'",
                                          name_of(identity_.protection), name_of(protection_));
  refusal.resize(std::min(refusal.size(), kMaxReasonBytes));
  std::string said;
  ByteWriter(said).u16(static_cast<std::uint16_t>(refusal.size()));
  said += refusal;
  out += said;
  out += key_.sign({kVerdict, transcript_, said}).view();
  if (!refusal.empty()) return refuse(std::move(refusal));
  state_ = State::accepted;
}

SecureStream Responder::stream(UniqueFd fd) const {
  return make_stream(std::move(fd), protection_, key_, transcript_, false);
}

}  // namespace dtrain::net
