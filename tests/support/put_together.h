// Tensors that ranks saved in parts, put together again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parallel/layout/saved_tensors.h"

namespace dtrain::test {

/// What the ranks saved; add() the parts of each.
struct PutTogether {
  std::map<std::string, std::vector<float>> values;  ///< row-major, by name
  std::map<std::string, std::int64_t> counted;       ///< elements, by all ranks

  void add(const std::vector<NamedShard>& parts) {
    for (const NamedShard& part : parts) {
      const TensorShard where = part.part.value_or(TensorShard::whole(part.tensor.shape()));
      auto& whole = values[part.name];
      whole.resize(static_cast<std::size_t>(where.shape.product()));
      const auto here = part.tensor.to_vector<float>();
      for_each_shared_run(TensorShard::whole(where.shape), where, [&](const SharedRun& run) {
        std::copy_n(here.begin() + run.in_b, run.count, whole.begin() + run.in_a);
        return true;
      });
      counted[part.name] += where.count;
    }
  }
};

/// Between values of one name; infinite where names or counts differ.
inline double largest_difference(const std::map<std::string, std::vector<float>>& a,
                                 const std::map<std::string, std::vector<float>>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, values] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second.size() != values.size()) return INFINITY;
    for (std::size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(values[i]) - found->second[i]));
  }
  return largest;
}

}  // namespace dtrain::test
