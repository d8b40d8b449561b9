#include "tests/bench/allreduce/timing.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/clock.h"

namespace dtrain::bench {

int rounds() {
  const char* text = std::getenv("BENCH_ROUNDS");
  return text == nullptr ? 15 : std::max(1, std::atoi(text));
}

double time_calls(Side& side, std::vector<float>& data, int calls) {
  const TimePoint start = steady_clock().now();
  for (int i = 0; i < calls; ++i) side.sum(data.data(), data.size());
  return std::chrono::duration<double, std::micro>(steady_clock().now() - start).count() / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace dtrain::bench
