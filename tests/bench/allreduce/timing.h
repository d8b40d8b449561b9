// How a side of the comparison is timed.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/bench/allreduce/sides.h"

namespace dtrain::bench {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// BENCH_ROUNDS, or 15.
int rounds();

/// Microseconds a call, over `calls` calls.
double time_calls(Side& side, std::vector<float>& data, int calls);

/// Of at least one value.
double median(std::vector<double> values);

}  // namespace dtrain::bench
