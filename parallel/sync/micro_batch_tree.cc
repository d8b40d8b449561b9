#include "parallel/sync/micro_batch_tree.h"

#include <bit>

namespace dtrain {
namespace {

/// Where the leaves of the right child begin; `node` has at least two.
int middle_of(const MicroBatchRange& node) noexcept {
  const auto below = static_cast<unsigned>(node.count() - 1);
  return node.first + static_cast<int>(std::bit_floor(below));
}

void collect(const MicroBatchRange& node, const MicroBatchRange& run, std::vector<MicroBatchRange>& nodes) {
  if (node.end <= run.first || run.end <= node.first) return;
  if (run.first <= node.first && node.end <= run.end) return nodes.push_back(node);
  const int middle = middle_of(node);
  collect({node.first, middle}, run, nodes);
  collect({middle, node.end}, run, nodes);
}

}  // namespace

MicroBatchRange micro_batches_of(int parts, int rank, int ranks) noexcept {
  const auto begin = [&](int of) { return static_cast<int>(static_cast<long long>(parts) * of / ranks); };
  return {begin(rank), begin(rank + 1)};
}

bool are_siblings(int parts, const MicroBatchRange& left, const MicroBatchRange& right) noexcept {
  if (left.end != right.first) return false;
  MicroBatchRange node{0, parts};
  while (node.count() > 1) {
    const int middle = middle_of(node);
    if (node.first == left.first && node.end == right.end) return middle == left.end;
    if (right.end <= middle) {
      node.end = middle;
    } else if (left.first >= middle) {
      node.first = middle;
    } else {
      return false;
    }
  }
  return false;
}

std::vector<MicroBatchRange> nodes_within(int parts, const MicroBatchRange& run) {
  std::vector<MicroBatchRange> nodes;
  collect({0, parts}, run, nodes);
  return nodes;
}

}  // namespace dtrain
