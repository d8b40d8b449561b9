#include "collectives/p2p/algorithm/sum_tree.h"

#include <algorithm>
#include <bit>

namespace dtrain::p2p {
namespace {

void collect(TreeNode node, std::span<const int> held, std::vector<TreeNode>& found) {
  const auto first = std::lower_bound(held.begin(), held.end(), node.begin);
  const auto last = std::lower_bound(first, held.end(), node.end);
  if (first == last) return;
  if (last - first == node.leaves()) return found.push_back(node);
  const int middle = node.begin + left_leaves(node.leaves());
  collect({node.begin, middle}, {first, last}, found);
  collect({middle, node.end}, {first, last}, found);
}

}  // namespace

int left_leaves(int leaves) noexcept {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(leaves - 1)));
}

std::vector<TreeNode> complete_nodes(int world, std::span<const int> held) {
  std::vector<TreeNode> found;
  collect({0, world}, held, found);
  return found;
}

}  // namespace dtrain::p2p
