// Who makes progress, by what workers have used and printed; the clock is the test's.
#include "launcher/watch/progress.h"

#include <gtest/gtest.h>

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Change = ProgressWatch::Change;

class Progress : public testing::Test {
 protected:
  /// Looks once a second until `end` seconds have passed; gives the news of the last look that had any.
  Change look_until(int end) {
    Change news = Change::none;
    for (; now < TimePoint{} + seconds(end);) {
      now += seconds(1);
      for (std::size_t i = 0; i < usage.size(); ++i) {
        if (usage[i]) usage[i]->cpu_seconds += share[i];
        if (usage[i]) usage[i]->io_bytes += bytes[i];
      }
      const Change here = watch.look({usage[0], usage[1]}, now);
      if (here != Change::none) news = here;
    }
    return news;
  }

  TimePoint now{};
  ProgressWatch watch{2, seconds(10), now};
  std::vector<std::optional<Usage>> usage{Usage{}, Usage{}};
  std::vector<double> share{1, 1};         // cores
  std::vector<std::uint64_t> bytes{0, 0};  // a second
};

TEST_F(Progress, IsCpuTimeInputOrOutput) {
  share[1] = 0.001;
  bytes[1] = 1 << 20;
  EXPECT_EQ(look_until(30), Change::none) << "rank 1 reads a file";
  bytes[1] = 100;
  EXPECT_EQ(look_until(38), Change::none);
  watch.on_output(1, now);
  EXPECT_EQ(look_until(47), Change::none) << "it said something at 38 s";
  EXPECT_EQ(look_until(48), Change::stalled);
  EXPECT_TRUE(watch.hangs(1, now));
  EXPECT_FALSE(watch.hangs(0, now));
  EXPECT_EQ(watch.workers(now)[1]->since_line, Duration(seconds(10)));
  EXPECT_FALSE(watch.workers(now)[0]->since_line);
}

TEST_F(Progress, IsToldOnceAndItsReturnToo) {
  share[0] = 0;
  EXPECT_EQ(look_until(15), Change::stalled);
  EXPECT_EQ(look_until(60), Change::none) << "said before";
  share[0] = 0.5;
  EXPECT_EQ(look_until(61), Change::resumed);
  share[1] = 0;
  EXPECT_EQ(look_until(80), Change::stalled);
  watch.on_exit(1);
  EXPECT_EQ(look_until(90), Change::none) << "it has ended, which is no progress";
}

TEST_F(Progress, IsNotMissedInWorkersThatHaveEndedOrCannotBeSeen) {
  share = {0, 0};
  usage[0].reset();
  watch.on_exit(1);
  EXPECT_EQ(look_until(60), Change::none);
  EXPECT_FALSE(watch.workers(now)[1]);
}

TEST_F(Progress, IsNotJudgedByATimeWhenNobodyLooked) {
  share = {0, 0};
  look_until(3);
  now += seconds(3600);
  EXPECT_EQ(watch.look({usage[0], usage[1]}, now), Change::none)
      << "the launcher was stopped, and they with it";
  EXPECT_EQ(look_until(3600 + 14), Change::stalled);
}

TEST(ProgressOff, LooksAtNothing) {
  const ProgressWatch watch(1, Duration::zero(), TimePoint{});
  EXPECT_FALSE(watch.next_look());
}

}  // namespace
}  // namespace dtrain::launcher
