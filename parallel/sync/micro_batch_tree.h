// The fixed binary tree along which the parts of a batch are added up, on any worker: what makes sums
// the same bits for any number of ranks. Pure arithmetic.
//
//     8 parts                 0 1 2 3 4 5 6 7
//     nodes of 3 ranks       [0 1] 2 [3] ...      each rank adds up the largest nodes inside its run
#pragma once

#include <vector>

namespace dtrain {

/// Consecutive parts [first, end): a rank's, or the leaves below a node of the tree.
struct MicroBatchRange {
  int first = 0, end = 0;

  int count() const noexcept { return end - first; }
  bool operator==(const MicroBatchRange&) const = default;
};

/// The parts that `rank` of `ranks` computes: consecutive runs in rank order, whose lengths differ by one at
/// most.
MicroBatchRange micro_batches_of(int parts, int rank, int ranks) noexcept;

/// Whether `left` and `right` are the two children of one node of the tree over `parts` leaves. A node of n
/// leaves has the largest power of two below n on its left.
bool are_siblings(int parts, const MicroBatchRange& left, const MicroBatchRange& right) noexcept;

/// The largest nodes that lie within `run`, left to right; together they are all of it.
std::vector<MicroBatchRange> nodes_within(int parts, const MicroBatchRange& run);

}  // namespace dtrain
