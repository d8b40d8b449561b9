#include "collectives/p2p/algorithm/measure_costs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "collectives/p2p/algorithms.h"
#include "collectives/p2p/reduce.h"
#include "runtime/base/clock.h"

namespace dtrain::p2p {
namespace {

constexpr int kRoundTrips = 8, kBurst = 16, kRepeats = 3;
// Enough for a link's own buffers not to hide its speed; 4 ms at 1 Gbit/s.
constexpr std::size_t kLargeBytes = 512 * 1024, kReducedBytes = 128 * 1024;
constexpr double kLeastMessage = 1e-8;

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(steady_clock().now() - start).count();
}

/// One end of a pair; both do the same, each its side.
class Pair {
 public:
  Pair(const AlgorithmContext& context, int peer, bool first)
      : context_(context),
        peer_(peer),
        first_(first),
        memory_(kLargeBytes),
        buffer_(context.transport.make_buffer(memory_.data(), memory_.size())) {}

  // The least of several: a rank may have to wait for a core.
  LinkCosts measure() {
    const double round_trip = least(kRoundTrips, 1, 1), burst = least(kRepeats, kBurst, 1),
                 large = least(kRepeats, 1, kLargeBytes);
    return {round_trip / 2, std::max(kLeastMessage, (burst - round_trip) / (kBurst - 1)),
            std::max(0.0, large - round_trip) / static_cast<double>(kLargeBytes)};
  }

 private:
  double least(int times, int messages, std::size_t bytes) {
    double least = exchange(messages, bytes);
    for (int i = 1; i < times; ++i) least = std::min(least, exchange(messages, bytes));
    return least;
  }

  // The first sends `messages` of `bytes`, the second answers when it has them all.
  double exchange(int messages, std::size_t bytes) {
    const TimePoint start = steady_clock().now();
    pass(first_, messages, context_.tag, bytes);
    pass(!first_, 1, context_.tag + 1, 1);
    return seconds_since(start);
  }

  void pass(bool sends, int messages, std::uint64_t tag, std::size_t bytes) {
    for (int i = 0; i < messages; ++i) {
      if (sends)
        buffer_->send(peer_, tag, 0, bytes);
      else
        buffer_->receive(peer_, tag, 0, bytes);
    }
    buffer_->wait_sends(context_.watchdog);
    buffer_->wait_receives(context_.watchdog);
  }

  const AlgorithmContext& context_;
  const int peer_;
  const bool first_;
  std::vector<std::byte> memory_;
  const std::unique_ptr<UnboundBuffer> buffer_;
};

using RankPair = std::optional<std::pair<int, int>>;

RankPair pair_within(const Topology& topology) {
  for (int host = 0; host < topology.hosts(); ++host) {
    const std::vector<int>& members = topology.members(host);
    if (members.size() > 1) return std::pair{members[0], members[1]};
  }
  return std::nullopt;
}

RankPair pair_between(const Topology& topology) {
  if (topology.hosts() < 2) return std::nullopt;
  return std::pair{topology.members(0).front(), topology.members(1).front()};
}

double time_of_reducing() {
  std::vector<float> a(kReducedBytes / sizeof(float), 1.0F), b = a;
  const std::array<Operand, 2> operands = {Operand{a.data()}, Operand{b.data()}};
  double least = 1;
  for (int i = 0; i < 3; ++i) {
    const TimePoint start = steady_clock().now();
    reduce(DType::f32, ReduceOp::sum, a.data(), operands, a.size());
    least = std::min(least, seconds_since(start));
  }
  return least / static_cast<double>(kReducedBytes);
}

}  // namespace

GroupCosts measure_costs(const AlgorithmContext& context, const Topology& topology) {
  GroupCosts mine{{}, {}, 0};
  const int rank = context.transport.rank();
  // One after the other: a rank may be in both.
  const auto measure = [&](const RankPair& pair, LinkCosts& costs) {
    if (!pair || (pair->first != rank && pair->second != rank)) return;
    const bool first = pair->first == rank;
    const LinkCosts seen = Pair(context, first ? pair->second : pair->first, first).measure();
    if (first) costs = seen;  // what the second saw includes waiting for the first
  };
  measure(pair_within(topology), mine.within);
  measure(pair_between(topology), mine.between);
  mine.reduced_byte = time_of_reducing();

  std::vector<GroupCosts> all(static_cast<std::size_t>(topology.size()));
  Exchange(context).all_gather(&mine, all.data(), sizeof mine);
  GroupCosts costs;
  costs.reduced_byte = 0;
  for (const GroupCosts& one : all) {  // each link was measured by one rank
    if (one.within.latency > 0) costs.within = one.within;
    if (one.between.latency > 0) costs.between = one.between;
    costs.reduced_byte = std::max(costs.reduced_byte, one.reduced_byte);
  }
  return costs;
}

}  // namespace dtrain::p2p
