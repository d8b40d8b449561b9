// How fast parameter servers let workers of unequal speed continue: real servers and workers over loopback,
// whose computing is replaced by sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "parallel/server/delays.h"
#include "parallel/server/server_rules.h"

namespace dtrain::bench {

struct PaceSetting {
  ServerRules rules;
  std::chrono::milliseconds length{2000};  ///< of the measurement
  std::chrono::milliseconds step{20};      ///< what computing a batch takes where nobody is slow
  std::int64_t parameters = 50'000;        ///< float32
};

struct Pace {
  double updates_per_second = 0;  ///< gradients applied, of all workers
  UpdateDelays delays;
};

/// By how much worker `worker` is slower than usual after `elapsed`: 1 is not at all.
using Slowness = std::function<double(int worker, std::chrono::nanoseconds elapsed)>;

/// Worker `slow` takes `factor` times as long, always.
Slowness one_is_slow(int slow, double factor);
/// So does one after the other: which one, and for how long (between `least` and `most`), is drawn from
/// `seed`.
Slowness slowness_that_moves(int workers, double factor, std::chrono::milliseconds least,
                             std::chrono::milliseconds most, std::uint64_t seed);

/// Workers are threads. Throws what workers throw.
Pace measure_pace(const PaceSetting& setting, const Slowness& slowness);

}  // namespace dtrain::bench
