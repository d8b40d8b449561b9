// Which way an all_reduce takes through the ranks. The bits of its result do not depend on it: every sum
// follows one tree over the ranks (docs/decisions/068).
#pragma once

#include <string_view>

namespace dtrain {

/// n ranks on h hosts, M bytes; what leaves each host of r ranks.
enum class AllReduceAlgorithm {
  automatic,    ///< what a model of this group's links predicts to be the fastest for the size
  direct,       ///< every rank sums up one part and gives it to all: two steps, 2·r·(n-r)/n·M
  ring,         ///< parts travel from rank to rank, twice around: 2·(n-1) steps; for lessons and comparisons
  tree,         ///< partial sums climb the tree to rank 0, the result comes down: 2·log2(n) steps
  hierarchical  ///< sums within each host first, between hosts only those: four steps, 2·(h-1)/h·M
};

/// "auto", "direct", "ring", "tree", "hierarchical"
std::string_view name_of(AllReduceAlgorithm algorithm) noexcept;

/// The algorithm of that name. Throws UsageError listing the names for any other text.
AllReduceAlgorithm all_reduce_algorithm_named(std::string_view name);

}  // namespace dtrain
