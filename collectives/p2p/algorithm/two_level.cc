#include "collectives/p2p/algorithm/two_level.h"

#include <algorithm>

#include "collectives/p2p/algorithm/rounds.h"
#include "collectives/p2p/reduce.h"

namespace dtrain::p2p {
namespace {

// Up to this many bytes go to and come from a single rank: more steps cost more than sharing the bytes gains.
constexpr std::size_t kWholeBytes = 64 * 1024, kWholeBroadcastBytes = 256 * 1024;

/// What the first rank of a host does in all_reduce_small(): its part is all of the data.
class FirstRank {
 public:
  FirstRank(const AlgorithmContext& context, const Topology& topology, std::size_t count, DType dtype,
            ReduceOp op)
      : context_(context),
        topology_(topology),
        rank_(context.transport.rank()),
        host_(topology.host_of(rank_)),
        count_(count),
        dtype_(dtype),
        op_(op) {
    for (int host = 0; host < topology.hosts(); ++host) {
      sums_of_.emplace_back(topology, host, dtype);
      places_.push_back(places_.back() + sums_of_.back().bytes(count));
    }
  }

  /// `data` is this rank's contribution, and becomes the result.
  void run(void* data) {
    const std::size_t stride = count_ * size_of(dtype_);
    std::byte* const sums = scratch_of(context_, places_.back() + stride * topology_.members(host_).size());
    const auto buffer = context_.transport.make_buffer(sums, places_.back());
    for (int host = 0; host < topology_.hosts(); ++host) {
      if (host != host_) buffer->receive(first_of(host), context_.tag + 1, place(host), bytes(host));
    }
    add_up_here(data, sums + places_.back(), sums + place(host_));
    for (int host = 0; host < topology_.hosts(); ++host) {
      if (host != host_) buffer->send(first_of(host), context_.tag + 1, place(host_), bytes(host_));
    }
    buffer->wait_receives(context_.watchdog);
    std::vector<std::pair<int, Operand>> operands;
    for (int host = 0; host < topology_.hosts(); ++host) {
      const HostSums& there = sums_of_[static_cast<std::size_t>(host)];
      for (std::size_t i = 0; i < there.nodes().size(); ++i) {
        const TreeNode node = there.nodes()[i];
        operands.push_back({node.begin, {sums + place(host) + there.offset(i, count_), node.leaves()}});
      }
    }
    std::ranges::sort(operands, {}, [](const auto& one) { return one.first; });
    operands_.clear();
    for (const auto& [begin, operand] : operands) operands_.push_back(operand);
    p2p::reduce(dtype_, op_, data, operands_, count_);
    buffer->wait_sends(context_.watchdog);
  }

 private:
  int first_of(int host) const { return topology_.members(host).front(); }
  std::size_t place(int host) const { return places_[static_cast<std::size_t>(host)]; }
  std::size_t bytes(int host) const { return sums_of_[static_cast<std::size_t>(host)].bytes(count_); }

  void add_up_here(const void* own, std::byte* memory, std::byte* sums) {
    const std::vector<int>& members = topology_.members(host_);
    const std::size_t stride = count_ * size_of(dtype_);
    const auto incoming = context_.transport.make_buffer(memory, stride * members.size());
    for (std::size_t i = 1; i < members.size(); ++i)
      incoming->receive(members[i], context_.tag, i * stride, stride);
    incoming->wait_receives(context_.watchdog);
    const HostSums& here = sums_of_[static_cast<std::size_t>(host_)];
    std::size_t i = 0;  // nodes hold a host's members from left to right
    for (std::size_t node = 0; node < here.nodes().size(); ++node) {
      operands_.clear();
      for (int leaf = 0; leaf < here.nodes()[node].leaves(); ++leaf, ++i)
        operands_.push_back({i == 0 ? own : memory + i * stride});
      p2p::reduce_to_node(dtype_, op_, sums + here.offset(node, count_), operands_, count_);
    }
  }

  const AlgorithmContext& context_;
  const Topology& topology_;
  const int rank_, host_;
  const std::size_t count_;
  const DType dtype_;
  const ReduceOp op_;
  std::vector<HostSums> sums_of_;          // by host
  std::vector<std::size_t> places_ = {0};  // of their sums in memory, and the end
  std::vector<Operand> operands_;
};

}  // namespace

std::vector<Part> TwoLevel::equal_parts(std::size_t each) const {
  std::vector<Part> parts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(topology_.size()); ++r)
    parts.push_back({r * each, (r + 1) * each});
  return parts;
}

std::vector<Part> TwoLevel::cut_in_parts(std::size_t count) const {
  std::vector<Part> parts;
  for (int r = 0; r < topology_.size(); ++r) parts.push_back(part_of(r, topology_.size(), count));
  return parts;
}

// With two hosts all that crosses goes from the root's to the other; with more, hosts also serve each other.
std::vector<Part> TwoLevel::cut_among_host(int rank, std::size_t count) const {
  const std::vector<int>& members = topology_.members(topology_.host_of(rank));
  std::vector<Part> parts(static_cast<std::size_t>(topology_.size()));
  for (std::size_t i = 0; i < members.size(); ++i) {
    parts[static_cast<std::size_t>(members[i])] =
        part_of(static_cast<int>(i), static_cast<int>(members.size()), count);
  }
  return parts;
}

std::vector<Part> TwoLevel::all_to(int rank, std::size_t count) const {
  std::vector<Part> parts(static_cast<std::size_t>(topology_.size()));
  parts[static_cast<std::size_t>(rank)] = {0, count};
  return parts;
}

void TwoLevel::all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t begin = part_of(rank_, topology_.size(), count).begin * size_of(dtype);
  Rounds(context_, topology_, {cut_in_parts(count), data, at(data, begin), data, dtype, op}).run();
}

void TwoLevel::reduce_scatter(const void* input, void* output, std::size_t part, DType dtype, ReduceOp op) {
  Rounds(context_, topology_, {equal_parts(part), input, output, nullptr, dtype, op}).run();
}

void TwoLevel::all_gather(void* output, std::size_t bytes) {
  void* const own = at(output, static_cast<std::size_t>(rank_) * bytes);
  Rounds(context_, topology_, {equal_parts(bytes), nullptr, own, output}).run();
}

void TwoLevel::broadcast(void* data, std::size_t bytes, int root) {
  if (bytes <= kWholeBroadcastBytes)
    return Rounds(context_, topology_, {all_to(root, bytes), nullptr, data, data}).run();
  const std::vector<Part> parts = topology_.hosts() == 2 ? cut_among_host(root, bytes) : cut_in_parts(bytes);
  const Part own = parts[static_cast<std::size_t>(rank_)];
  const auto buffer = context_.transport.make_buffer(data, bytes);
  if (rank_ == root) {
    for_each_peer(rank_, topology_.size(), [&](int peer) {
      const Part theirs = parts[static_cast<std::size_t>(peer)];
      if (theirs.count() > 0) buffer->send(peer, context_.tag, theirs.begin, theirs.count());
    });
  } else if (own.count() > 0) {
    buffer->receive(root, context_.tag, own.begin, own.count());
    buffer->wait_receives(context_.watchdog);
  }
  Rounds(context_, topology_, {parts, nullptr, at(data, own.begin), data}).run();
  buffer->wait_sends(context_.watchdog);
}

void TwoLevel::reduce(void* data, std::size_t count, DType dtype, ReduceOp op, int root) {
  const std::size_t width = size_of(dtype);
  const bool whole = count * width <= kWholeBytes || count < static_cast<std::size_t>(topology_.size());
  const std::vector<Part> parts = whole ? all_to(root, count) : cut_in_parts(count);
  const Part own = parts[static_cast<std::size_t>(rank_)];
  std::vector<std::byte> elsewhere(rank_ == root ? 0 : own.count() * width);
  void* const result = rank_ == root ? at(data, own.begin * width) : elsewhere.data();
  // A result overwrites the root's own contribution only after its owner has read that.
  const auto results = context_.transport.make_buffer(rank_ == root ? data : result, count * width);
  constexpr std::uint64_t kToRoot = 2;
  if (rank_ == root && !whole) {
    for_each_peer(rank_, topology_.size(), [&](int peer) {
      const Part theirs = parts[static_cast<std::size_t>(peer)];
      results->receive(peer, context_.tag + kToRoot, theirs.begin * width, theirs.count() * width);
    });
  }
  Rounds(context_, topology_, {parts, data, result, nullptr, dtype, op}).run();
  if (rank_ != root && !whole) results->send(root, context_.tag + kToRoot, 0, own.count() * width);
  results->wait_sends(context_.watchdog);
  results->wait_receives(context_.watchdog);
}

// A host's first rank has its sums; the first ranks give each other theirs, and each adds them up.
void TwoLevel::all_reduce_small(void* data, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t bytes = count * size_of(dtype);
  const std::vector<int>& members = topology_.members(topology_.host_of(rank_));
  const auto own = context_.transport.make_buffer(data, bytes);
  if (rank_ != members.front()) {
    own->receive(members.front(), context_.tag + 2, 0, bytes);
    own->send(members.front(), context_.tag, 0, bytes);
    own->wait_receives(context_.watchdog);
    return own->wait_sends(context_.watchdog);
  }
  FirstRank(context_, topology_, count, dtype, op).run(data);
  for (const int member : members) {
    if (member != rank_) own->send(member, context_.tag + 2, 0, bytes);
  }
  own->wait_sends(context_.watchdog);
}

}  // namespace dtrain::p2p
