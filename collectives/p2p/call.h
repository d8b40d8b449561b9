// What a rank asked its group to do, in a form that ranks can compare: a fingerprint that travels as the tag
// of every message, and a text for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace dtrain::p2p {

enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  receive,
  barrier,
  reduce,
  gather,
  scatter,
  all_to_all,
  exchange,
  offer,
  receive_any,
  leave  ///< the end of the group: its communicator is destroyed
};

std::string_view name_of(Operation operation) noexcept;
std::string_view name_of(ReduceOp op) noexcept;

/// One call as a rank made it. Two ranks agree when their fingerprints do.
struct Call {
  Operation operation = Operation::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::u8;
  int root = -1;  ///< of broadcast, reduce, gather, scatter; send, receive, offer: the other rank; else -1
  std::size_t count =
      0;  ///< elements of the span all ranks must agree on (the smaller one where there are two)
  std::uint64_t sequence =
      0;  ///< from 1; collectives are numbered per group, send and receive per pair and direction
  std::string label = {};
  std::uint64_t fingerprint = 0;
  std::vector<std::size_t> sends = {}, receives = {};  ///< all_to_all: elements to, and from, each rank
  std::vector<Call> messages = {};                     ///< exchange: its sends and receives

  /// Between some ranks only.
  bool is_pairwise() const noexcept {
    return operation == Operation::send || operation == Operation::receive ||
           operation == Operation::exchange || operation == Operation::offer ||
           operation == Operation::receive_any;
  }
  /// Whether `peer`, another rank, has a part in this call.
  bool involves(int peer) const noexcept;
  /// "all_reduce(float32 x 10, sum, 'bucket 1') #7"
  std::string text() const;
};

/// Fingerprint of a collective: of everything that must agree, and of all collectives before it through
/// `previous`. The two low bits are zero, for the phases of an algorithm.
std::uint64_t chain_fingerprint(std::uint64_t previous, const Call& call) noexcept;

/// Fingerprint both ends of a message from `from` to `to` compute.
std::uint64_t pair_fingerprint(std::uint64_t group, int from, int to, const Call& call) noexcept;

/// Fingerprint of an offer to rank `to` and of the receive_any there that may take it.
std::uint64_t any_fingerprint(std::uint64_t group, int to, const Call& call) noexcept;

/// Tag of the part of an all_to_all between two ranks: only equal counts meet.
std::uint64_t counted_fingerprint(std::uint64_t fingerprint, std::size_t count) noexcept;

/// What tells the topics of offers apart.
std::uint64_t topic_of(const Call& call) noexcept;

/// Hash of a group's name: where its chain of fingerprints starts.
std::uint64_t group_fingerprint(std::string_view name) noexcept;

/// Numbers the calls of one rank of a group in the order in which it makes them, and chains the fingerprints
/// of its collectives.
class CallNumbering {
 public:
  CallNumbering(std::string_view group, int rank, int size)
      : group_(group_fingerprint(group)),
        chain_(group_),
        rank_(rank),
        sent_(static_cast<std::size_t>(size)),
        received_(static_cast<std::size_t>(size)),
        offered_(static_cast<std::size_t>(size)) {}

  /// Sets the call's sequence and fingerprint, and those of its messages.
  void number(Call& call);

 private:
  const std::uint64_t group_;
  std::uint64_t chain_;
  const int rank_;
  std::uint64_t sequence_ = 0, exchanges_ = 0, taken_ = 0;
  std::vector<std::uint64_t> sent_, received_, offered_;  // by the other rank
};

}  // namespace dtrain::p2p
