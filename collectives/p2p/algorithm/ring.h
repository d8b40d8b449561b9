// all_reduce around a ring: parts travel from each rank to the next, gathering its contribution, and once
// more around as results. A plain ring adds in the order of arrival, which differs from part to part. This
// one has the tree's bits: what travels is the set of largest nodes of the tree that the ranks passed so far
// fill (sum_tree.h), two or three on average.
#pragma once

#include "collectives/communicator.h"
#include "collectives/p2p/algorithm/context.h"
#include "collectives/p2p/algorithm/sum_tree.h"

namespace dtrain::p2p {

/// In place. 2·(size-1) steps. For 2, 4, 8, 16 ranks the first round moves 1, 1.5, 2.1, 2.9 times the bytes
/// of a plain ring, the second the same as it.
void ring_all_reduce(const AlgorithmContext& context, void* data, std::size_t count, DType dtype,
                     ReduceOp op);

/// The nodes that travel when `gathered` ranks from `first` on, around the ring, have been passed.
std::vector<TreeNode> ring_nodes(int size, int first, int gathered);
/// No more than so many travel at once.
std::size_t most_ring_nodes(int size);

}  // namespace dtrain::p2p
