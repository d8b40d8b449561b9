// How two ends of a store connection prove to each other that they hold the job's token, as pure state
// machines over bytes. Three messages: hello (client), challenge with the server's proof, the client's proof;
// then frames under keys derived from everything said. docs/decisions/003-store.md has the layout.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/net/token.h"
#include "cluster/store/store_mac.h"

namespace dtrain::wire {

inline constexpr std::uint16_t kProtocolVersion = 1;
/// Nothing an unauthenticated peer sends may be longer.
inline constexpr std::size_t kMaxHelloBytes = 256;
inline constexpr std::size_t kMaxJobBytes = 128;
inline constexpr std::size_t kMaxRoleBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kChallengeBytes = 4 + 2 + kNonceBytes + Digest::kBytes;
using Nonce = std::array<std::uint8_t, kNonceBytes>;

/// Who a client says it is; covered by both proofs.
struct Identity {
  std::string job;   ///< at most kMaxJobBytes
  std::string role;  ///< "worker", "launcher"; at most kMaxRoleBytes
  std::int32_t rank = -1;
};

/// Keys of the two directions of one connection.
struct SessionKeys {
  Digest to_server;
  Digest to_client;
};

/// A fresh random nonce. Throws SystemError.
Nonce make_nonce();

/// The client's first message. Throws UsageError when job or role are too long.
std::string make_hello(const Identity& identity, const Nonce& nonce);

/// What a client makes of the server's challenge.
struct Answer {
  std::string error;  ///< empty when the server proved itself
  std::string proof;  ///< to be sent
  SessionKeys keys;
};

/// `challenge` is kChallengeBytes long. `secret` is the token's bytes, empty for none.
Answer answer_challenge(std::string_view secret, std::string_view hello, std::string_view challenge);

/// True while `bytes` (at most kChallengeBytes) can still become a challenge; lets a client tell a foreign
/// service apart early.
bool could_be_challenge(std::string_view bytes) noexcept;

/// The server's side of one connection. Keeps at most kMaxHelloBytes of what the peer sent.
class ServerHandshake {
 public:
  enum class State { want_hello, want_proof, accepted, refused };

  /// `secret` is viewed, not copied.
  ServerHandshake(std::string_view secret, const Nonce& nonce) : secret_(secret), nonce_(nonce) {}

  /// Takes what it needs of `bytes`, appends what is to be sent to `out`, and returns how many bytes it took:
  /// fewer than all only once accepted (the rest are frames) or refused.
  std::size_t feed(std::string_view bytes, std::string& out);

  State state() const noexcept { return state_; }
  /// Why it was refused.
  std::string_view reason() const noexcept { return reason_; }
  /// Known once accepted.
  const Identity& identity() const noexcept { return identity_; }
  SessionKeys keys() const;

 private:
  std::size_t missing_bytes() const noexcept;
  void take_hello(std::string& out);
  void take_proof();
  void refuse(std::string_view reason);

  std::string_view secret_;
  Nonce nonce_;
  State state_ = State::want_hello;
  std::string buffer_;      // the message being received
  std::string transcript_;  // hello and the challenge without its proof
  Identity identity_;
  std::string_view reason_;
};

}  // namespace dtrain::wire
