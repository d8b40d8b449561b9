// Ownership, deadlines, error text and bfloat16 rounding.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <climits>
#include <limits>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/fd.h"
#include "tests/support/manual_clock.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;

struct CountingTraits {
  using Handle = int;
  static inline int closed = 0;
  static Handle invalid() noexcept { return 0; }
  static void close(Handle) noexcept { ++closed; }
};

TEST(Unique, ReleasesExactlyOnceThroughMoves) {
  CountingTraits::closed = 0;
  {
    Unique<CountingTraits> first(7);
    Unique<CountingTraits> second(std::move(first));
    EXPECT_FALSE(first);
    first = std::move(second);
    EXPECT_EQ(first.get(), 7);
  }
  EXPECT_EQ(CountingTraits::closed, 1);
}

TEST(Unique, ReleaseGivesUpOwnership) {
  CountingTraits::closed = 0;
  { EXPECT_EQ(Unique<CountingTraits>(3).release(), 3); }
  EXPECT_EQ(CountingTraits::closed, 0);
}

static_assert(!std::is_copy_constructible_v<UniqueFd>);

TEST(Deadline, FollowsItsClock) {
  test::ManualClock clock;
  const Deadline deadline = Deadline::after(milliseconds(10), clock);
  EXPECT_FALSE(deadline.expired());
  EXPECT_EQ(deadline.poll_timeout_ms(), 10);
  clock.advance(milliseconds(9) + std::chrono::microseconds(1));
  EXPECT_EQ(deadline.poll_timeout_ms(), 1);
  clock.advance(milliseconds(5));
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(deadline.remaining(), Duration::zero());
}

TEST(Deadline, NeverAndOverflowDoNotExpire) {
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
  test::ManualClock clock;
  clock.advance(milliseconds(1));
  EXPECT_TRUE(Deadline::after(Duration::max(), clock).is_never());
  EXPECT_EQ(Deadline::after(std::chrono::hours(24 * 365), clock).poll_timeout_ms(), INT_MAX);
}

TEST(Check, NamesTheCallAndTheReason) {
  try {
    check(Sys{::open("/nonexistent/x", O_RDONLY)}, "open /nonexistent/x");
    FAIL() << "did not throw";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_STREQ(error.what(), "open /nonexistent/x: No such file or directory (errno 2)");
    EXPECT_EQ(error.exit_code(), ExitCode::system);
  }
}

TEST(DataError, SaysPathOffsetExpectedFound) {
  const DataError error("a.idx", 4, "60000 items", "59999");
  EXPECT_STREQ(error.what(), "a.idx: at byte 4: expected 60000 items, found 59999");
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(BFloat16(1.0F).bits, 0x3f80);
  EXPECT_EQ(BFloat16(1.00390625F).bits, 0x3f80);  // halfway, even below
  EXPECT_EQ(BFloat16(1.01171875F).bits, 0x3f82);  // halfway, even above
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(static_cast<float>(BFloat16(-2.5F)), -2.5F);
}

}  // namespace
}  // namespace dtrain
