#include "collectives/p2p/call.h"

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
  if (operation != Operation::barrier && operation != Operation::leave) {
    add(std::string(dtrain::name_of(dtype)) + " x " + std::to_string(count));
  }
  if (operation == Operation::all_reduce || operation == Operation::reduce_scatter) add(name_of(reduce));
  if (operation == Operation::broadcast) add("root " + std::to_string(root));
  if (operation == Operation::send) add("to rank " + std::to_string(root));
  if (operation == Operation::receive) add("from rank " + std::to_string(root));
  if (!label.empty()) add("'" + label + "'");
  return text + ") #" + std::to_string(sequence);
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

std::uint64_t group_fingerprint(std::string_view name) noexcept { return mix(hash_text(name)); }

void CallNumbering::number(Call& call) {
  if (!call.is_pairwise()) {
    call.sequence = ++sequence_;
    call.fingerprint = chain_ = chain_fingerprint(chain_, call);
    return;
  }
  const bool sends = call.operation == Operation::send;
  call.sequence = ++(sends ? sent_ : received_)[static_cast<std::size_t>(call.root)];
  call.fingerprint = pair_fingerprint(group_, sends ? rank_ : call.root, sends ? call.root : rank_, call);
}

}  // namespace dtrain::p2p
