#include "collectives/p2p/algorithm/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "collectives/p2p/reduce.h"

namespace dtrain::p2p {
namespace {

constexpr std::size_t kAlignment = 64;  // of each node's sums

/// What travels of a part is its nodes, one behind the other.
class Ring {
 public:
  Ring(const AlgorithmContext& context, void* data, std::size_t count, DType dtype, ReduceOp op)
      : context_(context),
        data_(data),
        count_(count),
        dtype_(dtype),
        op_(op),
        rank_(context.transport.rank()),
        size_(context.transport.size()) {}

  void run() {
    const std::size_t longest =
        (count_ + static_cast<std::size_t>(size_) - 1) / static_cast<std::size_t>(size_);
    const std::size_t most = most_ring_nodes(size_) * node_bytes({0, size_}, longest);
    incoming_ = scratch_of(context_, 2 * most);
    outgoing_ = incoming_ + most;
    add_up_around(most);
    pass_results_around();
  }

 private:
  int rank_after(int steps) const { return (rank_ + 2 * size_ + steps) % size_; }
  Part part(int owner) const { return part_of(owner, size_, count_); }
  std::size_t node_bytes(TreeNode node, std::size_t count) const {
    const std::size_t exact = count * size_of(node.leaves() == 1 ? dtype_ : sum_dtype(dtype_));
    return (exact + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::size_t bytes(const std::vector<TreeNode>& nodes, std::size_t count) const {
    std::size_t all = 0;
    for (const TreeNode node : nodes) all += node_bytes(node, count);
    return count == 0 ? 0 : all;
  }

  // In each step a rank sends on what it has, and receives the part of which one rank less has been heard.
  void add_up_around(std::size_t most) {
    const auto in = context_.transport.make_buffer(incoming_, most);
    const auto out = context_.transport.make_buffer(outgoing_, most);
    Part own = part(rank_);
    std::memcpy(outgoing_, at(data_, own.begin * size_of(dtype_)), own.count() * size_of(dtype_));
    for (int gathered = 1; gathered < size_; ++gathered) {
      const int leaving = rank_after(1 - gathered), coming = rank_after(-gathered);
      const std::size_t sent = bytes(ring_nodes(size_, leaving, gathered), part(leaving).count());
      const std::size_t received = bytes(ring_nodes(size_, coming, gathered), part(coming).count());
      if (received > 0) in->receive(rank_after(-1), context_.tag, 0, received);
      if (sent > 0) out->send(rank_after(1), context_.tag, 0, sent);
      in->wait_receives(context_.watchdog);
      out->wait_sends(context_.watchdog);
      if (received > 0) add_own(coming, gathered);
    }
  }

  // To the nodes in incoming_, of `gathered` ranks from `first` on, this rank's contribution.
  void add_own(int first, int gathered) {
    const Part own = part(first);
    std::byte* const mine = at(data_, own.begin * size_of(dtype_));
    std::vector<std::pair<int, Operand>> operands = {{rank_, {mine}}};
    const std::byte* place = incoming_;
    for (const TreeNode node : ring_nodes(size_, first, gathered)) {
      operands.push_back({node.begin, {place, node.leaves()}});
      place += node_bytes(node, own.count());
    }
    std::ranges::sort(operands, {}, [](const auto& one) { return one.first; });
    std::byte* out = outgoing_;
    auto next = operands.begin();
    for (const TreeNode node : ring_nodes(size_, first, gathered + 1)) {
      std::vector<Operand> inside;
      for (; next != operands.end() && next->first < node.end; ++next) inside.push_back(next->second);
      if (node.leaves() == size_) return reduce(dtype_, op_, mine, inside, own.count());
      reduce_to_node(dtype_, op_, out, inside, own.count());
      out += node_bytes(node, own.count());
    }
  }

  // A result comes only when this rank's contribution to it has gone round.
  void pass_results_around() {
    const auto buffer = context_.transport.make_buffer(data_, count_ * size_of(dtype_));
    for (int step = 0; step + 1 < size_; ++step) {
      const Part leaving = part(rank_after(1 - step)), coming = part(rank_after(-step));
      const std::size_t width = size_of(dtype_);
      if (coming.count() > 0)
        buffer->receive(rank_after(-1), context_.tag + 1, coming.begin * width, coming.count() * width);
      if (leaving.count() > 0)
        buffer->send(rank_after(1), context_.tag + 1, leaving.begin * width, leaving.count() * width);
      buffer->wait_receives(context_.watchdog);
    }
    buffer->wait_sends(context_.watchdog);
  }

  const AlgorithmContext& context_;
  void* const data_;
  const std::size_t count_;
  const DType dtype_;
  const ReduceOp op_;
  const int rank_, size_;
  std::byte* incoming_ = nullptr;
  std::byte* outgoing_ = nullptr;
};

}  // namespace

std::vector<TreeNode> ring_nodes(int size, int first, int gathered) {
  std::vector<int> held;
  for (int step = 0; step < gathered; ++step) held.push_back((first + step) % size);
  std::ranges::sort(held);
  return complete_nodes(size, held);
}

// A stretch of ranks from the first or to the last fills at most one node of each height; around the ring a
// stretch is at most two of those.
std::size_t most_ring_nodes(int size) {
  return 2 * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size)));
}

void ring_all_reduce(const AlgorithmContext& context, void* data, std::size_t count, DType dtype,
                     ReduceOp op) {
  Ring(context, data, count, dtype, op).run();
}

}  // namespace dtrain::p2p
