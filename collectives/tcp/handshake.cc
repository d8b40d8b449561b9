#include "collectives/tcp/handshake.h"

#include <fmt/format.h>

namespace dtrain::tcp {
namespace {

constexpr std::string_view kSecretLabel("dtrain link 1: secret of a listening rank\0", 42);
constexpr std::string_view kConfirmLabel("dtrain link 1: confirmation\0", 28);
constexpr std::string_view kFramesLabel("dtrain link 1: frames\0", 22);

// The handshake's proofs cover this; the secret covers the group's name.
wire::Identity identity_of(const Purpose& purpose) {
  return {fmt::format("link to {}", purpose.to), std::string(name_of(purpose.protection)), purpose.from};
}

Digest frame_key(const Digest& direction) { return MacKey(direction.view()).sign({kFramesLabel}); }

}  // namespace

Digest link_secret(std::string_view token, std::string_view group, std::string_view nonce) {
  const std::string lengths = fmt::format("{} {} ", group.size(), nonce.size());
  return MacKey(token).sign({kSecretLabel, lengths, group, nonce});
}

Initiator::Initiator(const Digest& secret, Purpose purpose)
    : secret_(secret),
      purpose_(std::move(purpose)),
      hello_(wire::make_hello(identity_of(purpose_), wire::make_nonce())) {}

std::size_t Initiator::wants() const noexcept {
  if (state_ == State::want_challenge) return wire::kChallengeBytes - buffer_.size();
  return state_ == State::want_confirmation ? kConfirmationBytes - buffer_.size() : 0;
}

void Initiator::fail(std::string_view reason) noexcept {
  state_ = State::failed;
  reason_ = reason;
}

void Initiator::feed(std::string_view bytes, std::string& out) {
  buffer_.append(bytes.substr(0, wants()));
  if (state_ == State::want_challenge && !wire::could_be_challenge(buffer_))
    return fail("what answers there is no rank of ours");
  if (wants() > 0) return;
  if (state_ == State::want_challenge) {
    wire::Answer answer = wire::answer_challenge(secret_.view(), hello_, buffer_);
    if (!answer.error.empty())
      return fail("what answers there does not belong to this group of this job, or runs another version");
    out += answer.proof;
    keys_ = answer.keys;
    buffer_.clear();
    state_ = State::want_confirmation;
  } else if (state_ == State::want_confirmation) {
    if (!MacKey(keys_.to_client.view()).verify({kConfirmLabel}, buffer_))
      return fail("what answers there confirms nothing");
    state_ = State::accepted;
  }
}

Connection Initiator::connect(UniqueFd fd) const {
  return {std::move(fd), FrameSealer(purpose_.protection, frame_key(keys_.to_server).view()),
          FrameOpener(purpose_.protection, frame_key(keys_.to_client).view())};
}

Responder::Responder(const Digest& secret, Purpose purpose, int size)
    : purpose_(std::move(purpose)), size_(size), handshake_(secret.view(), wire::make_nonce()) {}

void Responder::refuse(std::string_view reason) noexcept {
  state_ = State::refused;
  reason_ = reason;
}

void Responder::feed(std::string_view bytes, std::string& out) {
  const std::size_t taken = handshake_.feed(bytes, out);
  if (handshake_.state() == wire::ServerHandshake::State::refused) return refuse(handshake_.reason());
  if (handshake_.state() != wire::ServerHandshake::State::accepted) return;
  // Who belongs to us waits for the confirmation before it says anything else.
  if (taken < bytes.size()) return refuse("bytes after a proof");
  check_identity();
  if (state_ == State::refused) return;
  out += MacKey(handshake_.keys().to_client.view()).sign({kConfirmLabel}).view();
  state_ = State::accepted;
}

void Responder::check_identity() {
  const wire::Identity& peer = handshake_.identity();
  purpose_.from = peer.rank;
  const wire::Identity expected = identity_of(purpose_);
  if (peer.rank <= purpose_.to || peer.rank >= size_ || peer.job != expected.job)
    return refuse("a rank that has no business with this one");
  if (peer.role != expected.role) refuse("a rank with another protection of its messages");
}

Connection Responder::connect(UniqueFd fd) const {
  const wire::SessionKeys keys = handshake_.keys();
  return {std::move(fd), FrameSealer(purpose_.protection, frame_key(keys.to_client).view()),
          FrameOpener(purpose_.protection, frame_key(keys.to_server).view())};
}

}  // namespace dtrain::tcp
