#include "worker/benchmark/samples.h"

#include <algorithm>

namespace dtrain {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto below = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::min(below, values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

double least(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

void take_slowest_rank(Communicator& communicator, std::vector<double>& samples, const Deadline& deadline) {
  if (samples.empty()) return;
  communicator
      .all_reduce({.data = samples.data(), .count = samples.size(), .dtype = DType::f64}, ReduceOp::max,
                  "samples")
      ->wait(deadline);
}

}  // namespace dtrain
