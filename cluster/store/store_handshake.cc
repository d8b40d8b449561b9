// The store's handshake. Every HMAC covers a label that ends in NUL and the transcript: hello, magic,
// version, server nonce.
#include "cluster/store/store_handshake.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/store/store_wire.h"
#include "runtime/base/error.h"

namespace dtrain::wire {
namespace {

constexpr std::string_view kMagic = "DTST";
constexpr std::size_t kHelloPrefixBytes = 2;
constexpr std::size_t kUnprovenBytes = kChallengeBytes - Digest::kBytes;
constexpr std::string_view kServerProof("dtrain store 1: server proof\0", 29);
constexpr std::string_view kClientProof("dtrain store 1: client proof\0", 29);
constexpr std::string_view kToServerKey("dtrain store 1: key to server\0", 30);
constexpr std::string_view kToClientKey("dtrain store 1: key to client\0", 30);

std::string_view view(const Nonce& nonce) noexcept {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

SessionKeys derive_keys(const MacKey& key, std::string_view transcript) {
  return {key.sign({kToServerKey, transcript}), key.sign({kToClientKey, transcript})};
}

// nullopt unless `body` (a hello without its length) is well-formed; the version is checked before the rest
// is read.
std::optional<Identity> parse_hello(std::string_view body) {
  ByteReader reader(body);
  reader.raw(kMagic.size() + 2 + kNonceBytes);
  Identity identity;
  identity.rank = static_cast<std::int32_t>(reader.u32());
  identity.job = reader.text(kMaxJobBytes);
  identity.role = reader.text(kMaxRoleBytes);
  if (!reader.finished()) return std::nullopt;
  return identity;
}

}  // namespace

Nonce make_nonce() {
  Nonce nonce;
  fill_random(nonce.data(), nonce.size());
  return nonce;
}

std::string make_hello(const Identity& identity, const Nonce& nonce) {
  if (identity.job.size() > kMaxJobBytes || identity.role.size() > kMaxRoleBytes)
    throw UsageError(
        fmt::format("store: expected a job id of at most {} bytes and a role of at most {}, got {} and {}",
                    kMaxJobBytes, kMaxRoleBytes, identity.job.size(), identity.role.size()));
  std::string body;
  ByteWriter writer(body);
  writer.raw(kMagic);
  writer.u16(kProtocolVersion);
  writer.raw(view(nonce));
  writer.u32(static_cast<std::uint32_t>(identity.rank));
  writer.text(identity.job);
  writer.text(identity.role);
  std::string hello;
  ByteWriter(hello).u16(static_cast<std::uint16_t>(body.size()));
  return hello + body;
}

bool could_be_challenge(std::string_view bytes) noexcept {
  const std::size_t known = std::min(bytes.size(), kMagic.size());
  return bytes.substr(0, known) == kMagic.substr(0, known);
}

Answer answer_challenge(std::string_view secret, std::string_view hello, std::string_view challenge) {
  Answer answer;
  ByteReader reader(challenge);
  if (reader.raw(kMagic.size()) != kMagic || challenge.size() != kChallengeBytes) {
    answer.error = "what answers there is not a dtrain store";
    return answer;
  }
  if (const std::uint16_t version = reader.u16(); version != kProtocolVersion) {
    answer.error = fmt::format(
        "the store speaks protocol version {}, this program {}; run the same dtrain on every node", version,
        kProtocolVersion);
    return answer;
  }
  const MacKey key(secret);
  const std::string transcript = std::string(hello) + std::string(challenge.substr(0, kUnprovenBytes));
  if (!key.verify({kServerProof, transcript}, challenge.substr(kUnprovenBytes))) {
    answer.error =
        "the store there does not hold our token: another job's, or DTRAIN_TOKEN differs between processes";
    return answer;
  }
  answer.proof = key.sign({kClientProof, transcript}).view();
  answer.keys = derive_keys(key, transcript);
  return answer;
}

void ServerHandshake::refuse(std::string_view reason) {
  state_ = State::refused;
  reason_ = reason;
  buffer_ = {};
}

// Of the message being received; the hello's own length first, then what it announced.
std::size_t ServerHandshake::missing_bytes() const noexcept {
  if (state_ == State::want_proof) return Digest::kBytes - buffer_.size();
  if (buffer_.size() < kHelloPrefixBytes) return kHelloPrefixBytes - buffer_.size();
  return kHelloPrefixBytes + ByteReader(buffer_).u16() - buffer_.size();
}

std::size_t ServerHandshake::feed(std::string_view bytes, std::string& out) {
  std::size_t taken = 0;
  while (taken < bytes.size() && (state_ == State::want_hello || state_ == State::want_proof)) {
    const std::size_t step = std::min(missing_bytes(), bytes.size() - taken);
    buffer_.append(bytes.substr(taken, step));
    taken += step;
    if (state_ == State::want_hello && buffer_.size() == kHelloPrefixBytes) {
      const std::size_t announced = kHelloPrefixBytes + ByteReader(buffer_).u16();
      if (announced > kMaxHelloBytes || announced == kHelloPrefixBytes)
        refuse("a hello of impossible length");
      continue;
    }
    if (missing_bytes() > 0) continue;
    state_ == State::want_hello ? take_hello(out) : take_proof();
  }
  return taken;
}

void ServerHandshake::take_hello(std::string& out) {
  ByteReader reader(std::string_view(buffer_).substr(kHelloPrefixBytes));
  if (reader.raw(kMagic.size()) != kMagic) return refuse("a hello that is not a dtrain store's");
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
  out += MacKey(secret_).sign({kServerProof, transcript_}).view();
  buffer_.clear();
  state_ = State::want_proof;
}

void ServerHandshake::take_proof() {
  if (!MacKey(secret_).verify({kClientProof, transcript_}, buffer_))
    return refuse("a client without our token");
  buffer_ = {};
  state_ = State::accepted;
}

SessionKeys ServerHandshake::keys() const { return derive_keys(MacKey(secret_), transcript_); }

}  // namespace dtrain::wire
