// How two ranks prove to each other that they belong to the same group of the same job: the store's handshake
// (hello, challenge with a proof, proof), under a secret of the listening rank's own in this group, and a
// confirmation. Pure state machines over bytes; what a frame's keys are made from.
#pragma once

#include <string>
#include <string_view>

#include "cluster/store/store_handshake.h"
#include "collectives/protection.h"
#include "collectives/tcp/link.h"

namespace dtrain::tcp {

/// What both ends of a connection must agree on before they speak.
struct Purpose {
  std::string group;  ///< the group's name in the store, unique in the job
  int from = 0;       ///< the rank that connects
  int to = 0;         ///< the rank that listens
  Protection protection = Protection::authenticate;
};

/// The secret of the connections to one listening rank. `token`: the job's secret, empty for none; `nonce`:
/// random bytes that rank has left in the store, so that who cannot read the store there stays out even where
/// there is no token. Throws Error when libcrypto refuses.
Digest link_secret(std::string_view token, std::string_view group, std::string_view nonce);

inline constexpr std::size_t kConfirmationBytes = Digest::kBytes;

/// The connecting end.
class Initiator {
 public:
  enum class State { want_challenge, want_confirmation, accepted, failed };

  /// Throws SystemError without random bytes.
  Initiator(const Digest& secret, Purpose purpose);

  /// What is to be sent at first.
  const std::string& hello() const noexcept { return hello_; }
  /// How many bytes it can take now: not one more may be read, since frames follow.
  std::size_t wants() const noexcept;
  /// Takes at most wants() bytes; appends what is to be sent to `out`.
  void feed(std::string_view bytes, std::string& out);

  State state() const noexcept { return state_; }
  std::string_view reason() const noexcept { return reason_; }
  /// Once accepted.
  Connection connect(UniqueFd fd) const;

 private:
  void fail(std::string_view reason) noexcept;

  const Digest secret_;
  const Purpose purpose_;
  const std::string hello_;
  std::string buffer_;
  wire::SessionKeys keys_;
  State state_ = State::want_challenge;
  std::string_view reason_;
};

/// The listening end, for anybody who comes. Keeps at most wire::kMaxHelloBytes of what a stranger sent.
class Responder {
 public:
  enum class State { listens, accepted, refused };

  /// `purpose.from` is not known yet. `size`: of the group. `secret` is borrowed.
  Responder(const Digest& secret, Purpose purpose, int size);

  /// Appends what is to be sent to `out`.
  void feed(std::string_view bytes, std::string& out);

  State state() const noexcept { return state_; }
  std::string_view reason() const noexcept { return reason_; }
  /// Once accepted: who it is.
  int from() const noexcept { return purpose_.from; }
  Connection connect(UniqueFd fd) const;

 private:
  void refuse(std::string_view reason) noexcept;
  void check_identity();

  Purpose purpose_;
  const int size_;
  wire::ServerHandshake handshake_;
  State state_ = State::listens;
  std::string_view reason_;
};

}  // namespace dtrain::tcp
