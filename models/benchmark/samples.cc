#include "models/benchmark/samples.h"

#include <algorithm>

namespace dtrain {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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
