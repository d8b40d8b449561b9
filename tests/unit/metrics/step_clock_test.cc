// Phases add up to the time that passed, and skipped time belongs to none.
#include "runtime/metrics/step_clock.h"

#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

TEST(StepClock, LapsGoToTheirPhase) {
  test::ManualClock clock;
  StepClock steps(clock);
  clock.advance(milliseconds(3));
  steps.lap(Phase::forward);
  clock.advance(milliseconds(100));
  steps.skip();
  clock.advance(milliseconds(5));
  steps.lap(Phase::backward);
  steps.finish_step();
  EXPECT_EQ(steps.spent(Phase::forward), milliseconds(3));
  EXPECT_EQ(steps.spent(Phase::backward), milliseconds(5));
  EXPECT_EQ(steps.total(), milliseconds(8));
  EXPECT_NE(steps.table().find("backward            5.000    62.5%"), std::string::npos) << steps.table();
}

}  // namespace
}  // namespace dtrain
