// How two ends of a connection prove to each other that they hold the same secret, as pure state machines
// over bytes: hello, challenge with a proof, proof, verdict. Then frames follow, under keys derived from
// everything said. docs/decisions/065-one-secure-stream.md has the layout.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cluster/net/mac.h"
#include "cluster/net/protection.h"
#include "cluster/net/secure_stream.h"

namespace dtrain::net {

inline constexpr std::uint16_t kProtocolVersion = 2;
/// Nothing an unauthenticated peer sends may be longer.
inline constexpr std::size_t kMaxHelloBytes = 256;
inline constexpr std::size_t kMaxServiceBytes = 128;
inline constexpr std::size_t kMaxRoleBytes = 32;
inline constexpr std::size_t kMaxReasonBytes = 512;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kChallengeBytes = 4 + 2 + kNonceBytes + Digest::kBytes;
using Nonce = std::array<std::uint8_t, kNonceBytes>;

/// Who comes, and what for; covered by both proofs.
struct Identity {
  std::string service;  ///< what it wants to speak to: the store of a job, a rank; at most kMaxServiceBytes
  std::string role;     ///< "worker", "launcher", for messages; at most kMaxRoleBytes
  std::int32_t rank = -1;
  Protection protection = Protection::authenticate;  ///< of the frames; both ends must want the same
};

/// A fresh random nonce. Throws SystemError.
Nonce make_nonce();

/// The end that connects.
class Initiator {
 public:
  enum class State { want_challenge, want_verdict, accepted, failed };

  /// `secret`: what both ends must hold, empty for none. Throws UsageError when `identity` is too long.
  Initiator(std::string_view secret, const Identity& identity, const Nonce& nonce = make_nonce());

  /// What is to be sent at first.
  const std::string& hello() const noexcept { return hello_; }
  /// How many bytes it can take now: not one more may be read, since frames follow.
  std::size_t wants() const noexcept;
  /// Takes at most wants() bytes; appends what is to be sent to `out`.
  void feed(std::string_view bytes, std::string& out);

  State state() const noexcept { return state_; }
  /// Why it failed, of the other end; it would fail there again.
  const std::string& reason() const noexcept { return reason_; }
  /// Once accepted.
  SecureStream stream(UniqueFd fd) const;

 private:
  void fail(std::string reason);
  void take_challenge(std::string& out);
  void take_verdict();

  const MacKey key_;
  const Protection protection_;
  const std::string hello_;
  std::string buffer_;      // the message being received
  std::string transcript_;  // hello and the challenge without its proof
  State state_ = State::want_challenge;
  std::string reason_;
};

/// Why one whose proof is right is not let in all the same; empty: it is.
using Admit = std::function<std::string(const Identity&)>;

/// The end that listens, for anyone who comes. Keeps at most kMaxHelloBytes of what a stranger sent, and
/// answers it once.
class Responder {
 public:
  enum class State { want_hello, want_proof, accepted, refused };

  /// `key`, of the secret, and `admit` are borrowed.
  Responder(const MacKey& key, Protection protection, const Admit& admit, const Nonce& nonce = make_nonce())
      : key_(key), protection_(protection), admit_(admit), nonce_(nonce) {}

  /// Appends what is to be sent to `out`, also when it refuses.
  void feed(std::string_view bytes, std::string& out);

  State state() const noexcept { return state_; }
  /// What it was refused for: "a hello of another protocol version".
  const std::string& reason() const noexcept { return reason_; }
  /// Known once a proof was right.
  const Identity& identity() const noexcept { return identity_; }
  /// Once accepted.
  SecureStream stream(UniqueFd fd) const;

 private:
  std::size_t missing_bytes() const noexcept;
  void take_hello(std::string& out);
  void take_proof(std::string& out);
  void refuse(std::string reason);

  const MacKey& key_;
  const Protection protection_;
  const Admit& admit_;
  const Nonce nonce_;
  State state_ = State::want_hello;
  std::string buffer_;      // the message being received
  std::string transcript_;  // hello and the challenge without its proof
  Identity identity_;
  std::string reason_;
};

}  // namespace dtrain::net
