// The order of every sum over ranks: a binary tree whose shape depends on their number alone. A node of n
// leaves has the largest power of two below n on its left. Addition is commutative, so any algorithm that
// adds the same pairs has the same bits.
#pragma once

#include <span>
#include <vector>

namespace dtrain::p2p {

/// The leaves [begin, end) of consecutive ranks: a leaf, or what two smaller nodes add up to.
struct TreeNode {
  int begin = 0, end = 0;

  int leaves() const noexcept { return end - begin; }
  bool operator==(const TreeNode&) const = default;
};

/// How many of `leaves` > 1 leaves are on the left.
int left_leaves(int leaves) noexcept;

/// What the contributions of the ranks `held` (ascending) of `world` can be added up to before the others are
/// known: the largest nodes of the tree that hold no leaf of another rank, from left to right. A rank whose
/// neighbours in the tree are elsewhere is a node of one leaf.
std::vector<TreeNode> complete_nodes(int world, std::span<const int> held);

}  // namespace dtrain::p2p
