// What workers and parameter servers send each other, as pure functions of bytes: no sockets here. A
// message is an envelope of fixed size, then keys and a text where it has any, then a payload; integers are
// little-endian. It travels over a connection whose frames are authenticated (decision 028), so that what
// arrives here comes from a process of the job; it is checked all the same. Decision 037 has the rules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain::server {

/// What a worker asks. Each request has one answer, and a worker's requests are answered in their order.
enum class Op : std::uint8_t {
  init = 1,  ///< text: the tensor's description; payload: its values, or nothing to wait for who brings them
  push,      ///< keys, payload: their gradients, one after another, but of those marked kNoGradient; rate: of
             ///< the update
  pull,      ///< keys; number: the version to wait for
  put,       ///< number, text: what wait_get() of that number gives from now on
  wait_get,  ///< number; waits for put()
  state,     ///< everything that the server holds, between two updates
  restore,   ///< text, payload as the answer to `state` has them: what updates resume from
  finish,    ///< this worker makes no more updates; does not wait
  wait_for_others,  ///< waits until all other workers have finished or are gone
  report,           ///< how far pushes were behind, as text
  disconnect,       ///< this worker goes, and all is well
};
inline constexpr auto kLastOp = static_cast<std::uint8_t>(Op::disconnect);

enum class Status : std::uint8_t {
  ok = 1,
  refused,  ///< text: why; the request made no sense
  over,     ///< text: why; nothing will be answered any more
};
inline constexpr auto kLastStatus = static_cast<std::uint8_t>(Status::over);

/// The fixed part of a message. `kind` is an Op in a request and a Status in an answer.
struct Envelope {
  std::uint8_t kind = 0;
  std::uint32_t keys = 0, text_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t id = 0;     ///< of the request; its answer has the same
  std::int64_t number = 0;  ///< see Op; in the answer to a push: how many updates it was behind
  std::int64_t ahead = 0;   ///< in the answer to a push: how many updates its worker was ahead of the slowest
  double rate = 0;

  std::size_t preface_bytes() const noexcept { return std::size_t{4} * keys + text_bytes; }
  bool operator==(const Envelope&) const = default;
};

inline constexpr std::size_t kEnvelopeBytes = 52;
/// With a key of a push: this worker did not use it, and sends nothing.
inline constexpr std::uint32_t kNoGradient = 1U << 31;
inline constexpr std::uint32_t kMostKeys = 1U << 20, kMostTextBytes = 64U << 20;
inline constexpr std::uint64_t kMostPayloadBytes = std::uint64_t{1} << 36;

/// A whole message.
struct Message {
  Envelope head;  ///< its counts are set when it is sent
  std::vector<std::uint32_t> keys = {};
  std::string text = {};
  std::vector<std::byte> payload = {};

  Op op() const noexcept { return static_cast<Op>(head.kind); }
  Status status() const noexcept { return static_cast<Status>(head.kind); }
};

std::array<std::byte, kEnvelopeBytes> encode(const Envelope& envelope);
/// Nothing where `bytes`, kEnvelopeBytes of them, are no envelope, or its kind is not from 1 to `last_kind`.
std::optional<Envelope> decode_envelope(std::span<const std::byte> bytes, std::uint8_t last_kind);

/// Keys, then text.
std::vector<std::byte> encode_preface(const Message& message);
/// Fills keys and text of `message`, whose head is set, from its preface_bytes().
void decode_preface(std::span<const std::byte> bytes, Message& message);

/// A tensor's name, dtype (a number) and shape, as texts of init and state have them.
struct TensorMeta {
  std::string name;
  int dtype = 0;
  std::vector<std::int64_t> shape;
  bool operator==(const TensorMeta&) const = default;
};

/// What `state` answers beside the tensors' values: those of the keys, in their order, then the updater's.
struct StateMeta {
  std::vector<TensorMeta> tensors;
  std::int64_t keys = 0;              ///< how many of the tensors are keys
  std::vector<std::int64_t> applied;  ///< updates by worker
  bool operator==(const StateMeta&) const = default;
};

TensorMeta meta_of(const std::string& name, const Tensor& tensor);
std::string to_text(const TensorMeta& meta);
std::string to_text(const StateMeta& meta);
/// Nothing for a text that is none, or that names a shape or dtype that no tensor has.
std::optional<TensorMeta> tensor_meta(const std::string& text);
std::optional<StateMeta> state_meta(const std::string& text);
/// Of the tensor's values.
std::size_t bytes_of(const TensorMeta& meta);
std::size_t bytes_of(const Tensor& tensor);
/// Appends the values of `tensor`, of any device and layout, in row-major order.
void append_values(const Tensor& tensor, std::vector<std::byte>& payload);
/// Copies the values of `tensor`, dense and of the CPU, out of `payload` from `offset` on, which then is
/// behind them. False where there are too few bytes.
bool take_values(std::span<const std::byte> payload, std::size_t& offset, const Tensor& tensor);

}  // namespace dtrain::server
