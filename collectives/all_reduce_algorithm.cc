#include "collectives/all_reduce_algorithm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 5> kAlgorithmNames = {"auto", "direct", "ring", "tree",
                                                             "hierarchical"};

}  // namespace

std::string_view name_of(AllReduceAlgorithm algorithm) noexcept {
  return kAlgorithmNames[static_cast<std::size_t>(algorithm)];
}

AllReduceAlgorithm all_reduce_algorithm_named(std::string_view name) {
  const auto found = std::find(kAlgorithmNames.begin(), kAlgorithmNames.end(), name);
  if (found != kAlgorithmNames.end()) return static_cast<AllReduceAlgorithm>(found - kAlgorithmNames.begin());
  throw UsageError(
      fmt::format("all_reduce algorithm: expected {}, got '{}'", fmt::join(kAlgorithmNames, ", "), name));
}

}  // namespace dtrain
