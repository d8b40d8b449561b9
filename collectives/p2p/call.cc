#include "collectives/p2p/call.h"

#include <algorithm>

namespace dtrain::p2p {
namespace {

// The finalizer of SplitMix64: every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

std::uint64_t hash_text(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

constexpr std::uint64_t kPhaseBits = 3;
constexpr std::size_t kMostCountsShown = 8;

// "3+0+5"
std::string sum_text(const std::vector<std::size_t>& counts) {
  std::string text;
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    total += count;
    if (!text.empty()) text += '+';
    text += std::to_string(count);
  }
  return counts.size() <= kMostCountsShown ? text : std::to_string(total);
}

bool has_root(Operation operation) noexcept {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::gather || operation == Operation::scatter;
}

bool has_reduction(Operation operation) noexcept {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter ||
         operation == Operation::reduce;
}

bool has_count(Operation operation) noexcept {
  return operation != Operation::barrier && operation != Operation::leave &&
         operation != Operation::all_to_all && operation != Operation::exchange;
}

}  // namespace

std::string_view name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_gather:
      return "all_gather";
    case Operation::broadcast:
      return "broadcast";
    case Operation::send:
      return "send";
    case Operation::receive:
      return "receive";
    case Operation::barrier:
      return "barrier";
    case Operation::reduce:
      return "reduce";
    case Operation::gather:
      return "gather";
    case Operation::scatter:
      return "scatter";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::exchange:
      return "exchange";
    case Operation::offer:
      return "offer";
    case Operation::receive_any:
      return "receive_any";
    case Operation::leave:
      return "leave";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
    case ReduceOp::prod:
      return "prod";
  }
  return "?";
}

std::string Call::text() const {
  std::string text(name_of(operation));
  text += '(';
  std::string_view comma = "";
  const auto add = [&](std::string_view part) { (text += comma) += part, comma = ", "; };
  if (has_count(operation)) add(std::string(dtrain::name_of(dtype)) + " x " + std::to_string(count));
  if (operation == Operation::all_to_all) {
    add(std::string(dtrain::name_of(dtype)) + " x " + sum_text(sends) + " out");
    add(sum_text(receives) + " in");
  }
  if (operation == Operation::exchange) {
    for (const Call& message : messages) {
      add(std::string(dtrain::name_of(message.dtype)) + " x " + std::to_string(message.count) +
          (message.operation == Operation::send ? " to rank " : " from rank ") +
          std::to_string(message.root));
    }
  }
  if (has_reduction(operation)) add(name_of(reduce));
  if (has_root(operation)) add("root " + std::to_string(root));
  if (operation == Operation::send || operation == Operation::offer) add("to rank " + std::to_string(root));
  if (operation == Operation::receive) add("from rank " + std::to_string(root));
  if (!label.empty()) add("'" + label + "'");
  return text + ") #" + std::to_string(sequence);
}

bool Call::involves(int peer) const noexcept {
  if (!is_pairwise() || operation == Operation::receive_any) return true;
  if (operation != Operation::exchange) return root == peer;
  return std::any_of(messages.begin(), messages.end(),
                     [&](const Call& message) { return message.root == peer; });
}

std::uint64_t chain_fingerprint(std::uint64_t previous, const Call& call) noexcept {
  const std::uint64_t kind = static_cast<std::uint64_t>(call.operation) |
                             static_cast<std::uint64_t>(call.reduce) << 8 |
                             static_cast<std::uint64_t>(call.dtype) << 16 |
                             static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 24;
  return mix(mix(mix(mix(previous) ^ kind) ^ call.count) ^ hash_text(call.label)) & ~kPhaseBits;
}

std::uint64_t pair_fingerprint(std::uint64_t group, int from, int to, const Call& call) noexcept {
  const std::uint64_t ends =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 | static_cast<std::uint32_t>(to);
  const std::uint64_t kind = 0xff00ULL | static_cast<std::uint64_t>(call.dtype);
  return mix(mix(mix(mix(group ^ ends) ^ kind) ^ call.count) ^ mix(call.sequence) ^ hash_text(call.label)) &
         ~kPhaseBits;
}

std::uint64_t any_fingerprint(std::uint64_t group, int to, const Call& call) noexcept {
  const std::uint64_t kind = 0xfe00ULL | static_cast<std::uint64_t>(call.dtype);
  const std::uint64_t end = static_cast<std::uint32_t>(to);
  return mix(mix(mix(mix(group ^ end) ^ kind) ^ call.count) ^ hash_text(call.label)) & ~kPhaseBits;
}

std::uint64_t counted_fingerprint(std::uint64_t fingerprint, std::size_t count) noexcept {
  return mix(fingerprint ^ mix(count)) & ~kPhaseBits;
}

std::uint64_t topic_of(const Call& call) noexcept { return hash_text(call.label); }

std::uint64_t group_fingerprint(std::string_view name) noexcept { return mix(hash_text(name)); }

void CallNumbering::number(Call& call) {
  if (!call.is_pairwise()) {
    call.sequence = ++sequence_;
    call.fingerprint = chain_ = chain_fingerprint(chain_, call);
    return;
  }
  if (call.operation == Operation::exchange) {
    for (Call& message : call.messages) number(message);
    call.sequence = ++exchanges_;
    return;
  }
  if (call.operation == Operation::offer || call.operation == Operation::receive_any) {
    const bool offers = call.operation == Operation::offer;
    call.sequence = ++(offers ? offered_[static_cast<std::size_t>(call.root)] : taken_);
    call.fingerprint = any_fingerprint(group_, offers ? call.root : rank_, call);
    return;
  }
  const bool sends = call.operation == Operation::send;
  call.sequence = ++(sends ? sent_ : received_)[static_cast<std::size_t>(call.root)];
  call.fingerprint = pair_fingerprint(group_, sends ? rank_ : call.root, sends ? call.root : rank_, call);
}

}  // namespace dtrain::p2p
