// The collectives, written once over tagged messages, for every backend that has them: directly, where each
// rank owns one part of the data, reduces it and hands it to the others, or by an algorithm of algorithm/.
// Sums follow one tree over the ranks: the same bits on every rank, backend, algorithm and run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/p2p/algorithm/collective_plan.h"
#include "collectives/p2p/algorithm/context.h"
#include "collectives/p2p/reduce.h"
#include "collectives/p2p/transport.h"

namespace dtrain::p2p {

/// Runs one call.
class Exchange {
 public:
  /// `plan` is borrowed; null: everything directly.
  explicit Exchange(const AlgorithmContext& context, const CollectivePlan* plan = nullptr)
      : context_(context),
        plan_(plan),
        transport_(context.transport),
        watchdog_(context.watchdog),
        tag_(context.tag),
        rank_(transport_.rank()),
        size_(transport_.size()),
        operands_(static_cast<std::size_t>(size_)) {}

  /// In place. Large spans: 2·(size-1)/size of the bytes sent and received; scratch of at most two segments a
  /// peer.
  void all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op);
  /// `part` elements a rank; `input` has size·part and is only read.
  void reduce_scatter(const void* input, void* output, std::size_t part, DType dtype, ReduceOp op);
  void all_gather(const void* input, void* output, std::size_t bytes);
  /// These four end with a barrier: a rank that only sends could otherwise pass a call that some did not
  /// make.
  void broadcast(void* data, std::size_t bytes, int root);
  /// In place on `root`, where all ranks' data is reduced; elsewhere it is only read.
  void reduce(void* data, std::size_t count, DType dtype, ReduceOp op, int root);
  /// `bytes` a rank; `output` is used on `root`.
  void gather(const void* input, void* output, std::size_t bytes, int root);
  /// `bytes` a rank; `input` is used on `root`.
  void scatter(const void* input, void* output, std::size_t bytes, int root);
  /// sends[r] elements of `width` bytes to rank r, receives[r] from it, each in rank order. Ends with a
  /// barrier.
  void all_to_all(const void* input, std::span<const std::size_t> sends, void* output,
                  std::span<const std::size_t> receives, std::size_t width);
  void send(const void* data, std::size_t bytes, int to);
  void receive(void* data, std::size_t bytes, int from);

  /// A message under its own tag.
  struct P2pOp {
    void* data;
    std::size_t bytes;
    int peer;
    std::uint64_t tag;
    bool sends;
  };
  /// All at the same time; those of no bytes are not sent.
  void exchange(std::span<const P2pOp> operations);
  /// Announced by a byte that receive_any waits for.
  void offer(const void* data, std::size_t bytes, int to);
  /// Returns whose offer it took.
  int receive_any(void* data, std::size_t bytes);
  /// Dissemination: ceil(log2(size)) rounds of one byte. `phase` keeps it apart from other messages of the
  /// call.
  void barrier(std::uint64_t phase = 0);

 private:
  Part part_of(int rank, std::size_t count) const noexcept { return p2p::part_of(rank, size_, count); }
  bool has_levels() const noexcept { return plan_ != nullptr && plan_->has_levels(); }
  void all_reduce_directly(void* data, std::size_t count, DType dtype, ReduceOp op);
  void exchange_all(void* data, std::size_t count, DType dtype, ReduceOp op);
  void reduce_own(const std::byte* own, const ReceiveBuffers& others, std::byte* out, std::size_t count,
                  DType dtype, ReduceOp op);
  std::size_t world() const noexcept { return static_cast<std::size_t>(size_); }
  std::size_t segment_elems(std::size_t width) const noexcept;
  std::byte* scratch(std::size_t bytes) { return scratch_of(context_, bytes); }
  template <class Body>
  void for_each_peer(Body body) const {
    p2p::for_each_peer(rank_, size_, body);
  }

  const AlgorithmContext context_;
  const CollectivePlan* const plan_;
  Transport& transport_;
  Watchdog& watchdog_;
  std::uint64_t tag_;
  int rank_;
  int size_;
  std::vector<Operand> operands_;  ///< one's own and the others', by rank
};

}  // namespace dtrain::p2p
