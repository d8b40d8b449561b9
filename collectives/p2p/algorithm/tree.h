// all_reduce along the tree of sums itself: partial sums climb from the right half of every node to its left,
// whose first rank adds them up; rank 0 has the result, which comes down the same way. Few steps, but all
// bytes at each: for little data of very many ranks, and for comparisons.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "collectives/p2p/algorithm/context.h"
#include "collectives/p2p/algorithm/sum_tree.h"

namespace dtrain::p2p {

/// In place. 2·ceil(log2(size)) steps, in segments that follow each other.
void tree_all_reduce(const AlgorithmContext& context, void* data, std::size_t count, DType dtype,
                     ReduceOp op);

/// Where a rank stands in it.
struct TreePlace {
  int parent = -1;                 ///< gets this rank's sums; rank 0 has none
  TreeNode node;                   ///< what this rank adds up
  std::vector<TreeNode> children;  ///< from left to right; the first rank of each sends it
};
TreePlace tree_place(int size, int rank);

}  // namespace dtrain::p2p
