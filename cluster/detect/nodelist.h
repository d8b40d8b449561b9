// Slurm's compact notations for hosts and tasks, expanded with bounds: the text comes from outside, and a few
// bytes of it can stand for very much.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Nothing expands to more entries than this.
inline constexpr std::size_t kMaxNodes = 131072;
inline constexpr int kMaxTasksPerNode = 1 << 20;

/// Expands `gpu[001-004,007],login1` or `r[1-2]n[01-03]`: items split on commas outside brackets, each a
/// prefix and any number of `[a-b,c]`; the last bracket runs fastest; the width of a range's low bound is its
/// zero padding. Counts before it expands. Throws UsageError naming `what` and the place on anything else,
/// more than kMaxNodes hosts included; text after an item's last bracket is refused.
std::vector<std::string> expand_nodelist(std::string_view text, std::string_view what);

/// Expands `2(x3),1` to {2, 2, 2, 1}: one number for each node in nodelist order, 1 to kMaxTasksPerNode.
/// Throws UsageError naming `what`.
std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view what);

}  // namespace dtrain
