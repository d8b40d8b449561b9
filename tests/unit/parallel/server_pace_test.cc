// What asynchronous updates are for: slow workers do not hold the others, beyond the bound. A short form of
// tests/bench/server, with lower demands: other work may run beside it.
#include <gtest/gtest.h>

#include "tests/bench/server/pace.h"

namespace dtrain {
namespace {

bench::PaceSetting setting(ServerUpdate update, std::optional<std::int64_t> bound) {
  return {.rules = {.workers = 4, .update = update, .max_staleness = bound},
          .length = std::chrono::milliseconds(1200),
          .step = std::chrono::milliseconds(20),
          .parameters = 1000};
}

TEST(ServerPace, IsNotThatOfTheSlowestWorker) {
  const auto slow = bench::one_is_slow(3, 3);
  const auto sync = measure_pace(setting(ServerUpdate::sync, std::nullopt), slow);
  const auto async = measure_pace(setting(ServerUpdate::async, std::nullopt), slow);
  EXPECT_GT(async.updates_per_second, 1.5 * sync.updates_per_second);  // 2.5, were there nothing but sleeps
  EXPECT_GT(async.delays.ahead.rbegin()->first, 4);
}

TEST(ServerPace, IsBetterThanThatOfTheSlowestWhereSlownessMoves) {
  const auto moving =
      bench::slowness_that_moves(4, 3, std::chrono::milliseconds(80), std::chrono::milliseconds(240), 1);
  const auto sync = measure_pace(setting(ServerUpdate::sync, std::nullopt), moving);
  const auto bounded = measure_pace(setting(ServerUpdate::async, 4), moving);
  EXPECT_GT(bounded.updates_per_second, 1.15 * sync.updates_per_second);
  EXPECT_LE(bounded.delays.ahead.rbegin()->first, 4);
}

}  // namespace
}  // namespace dtrain
