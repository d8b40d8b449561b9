// Prints what asynchronous updates gain over synchronous ones where workers differ in speed, and how stale
// they are. Computing is replaced by sleeps, so that two cores show what four machines would.
//
//   server_pace [SECONDS a measurement, 10] [MILLISECONDS a step, 20]
#include <fmt/format.h>

#include <cstdlib>

#include "tests/bench/server/pace.h"

namespace dtrain::bench {
namespace {

constexpr int kWorkers = 4;
constexpr double kFactor = 3;

std::string most_of(const std::map<std::int64_t, std::int64_t>& histogram) {
  return histogram.empty() ? "-" : std::to_string(histogram.rbegin()->first);
}

double show(const char* name, const PaceSetting& setting, const Slowness& slowness, double against) {
  const Pace pace = measure_pace(setting, slowness);
  fmt::print("{:<28} {:>10.1f} {:>8} {:>12} {:>12}\n", name, pace.updates_per_second,
             against > 0 ? fmt::format("{:.2f} x", pace.updates_per_second / against) : "",
             most_of(pace.delays.behind), most_of(pace.delays.ahead));
  return pace.updates_per_second;
}

int run(std::chrono::milliseconds length, std::chrono::milliseconds step) {
  PaceSetting sync{.rules = {.workers = kWorkers}, .length = length, .step = step};
  PaceSetting async = sync;
  async.rules.update = ServerUpdate::async;
  PaceSetting bounded = async;
  bounded.rules.max_staleness = 4;
  fmt::print("{} workers, a step of {} ms, {} s each\n{:<28} {:>10} {:>8} {:>12} {:>12}\n", kWorkers,
             step.count(), length.count() / 1000, "", "updates/s", "", "most behind", "most ahead");
  fmt::print("one worker {} x slower\n", kFactor);
  const Slowness fixed = one_is_slow(kWorkers - 1, kFactor);
  const double base = show("  sync", sync, fixed, 0);
  show("  async", async, fixed, base);
  show("  async, bound 4", bounded, fixed, base);
  fmt::print("slowness that moves, {} to {} steps each\n", 4, 12);
  const Slowness moving = slowness_that_moves(kWorkers, kFactor, 4 * step, 12 * step, 1);
  const double moving_base = show("  sync", sync, moving, 0);
  show("  async", async, moving, moving_base);
  show("  async, bound 4", bounded, moving, moving_base);
  return 0;
}

}  // namespace
}  // namespace dtrain::bench

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 10, step = argc > 2 ? std::atoi(argv[2]) : 20;
  if (seconds < 1 || step < 1) {
    fmt::print(stderr, "server_pace: expected seconds and milliseconds of at least 1\n");
    return 2;
  }
  return dtrain::bench::run(std::chrono::seconds(seconds), std::chrono::milliseconds(step));
}
