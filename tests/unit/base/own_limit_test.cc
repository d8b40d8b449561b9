// What a test started and had to end itself fails the test with these words, not with exit code 137 alone.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/slowness.h"

namespace dtrain::test {
namespace {

std::string limit() { return "was ended by the test's own limit of " + std::to_string(kSlowness) + " s"; }

TEST(OwnLimit, IsNamedWithTheCommandAndWhatItPrinted) {
  EXPECT_NONFATAL_FAILURE(
      run({"sh", "-c", "echo waiting >&2; exec sleep 600"}, limited_to(std::chrono::seconds(1))),
      "exec sleep 600: expected it to end by itself, " + limit() + "; it had printed to stderr:\nwaiting\n");
}

TEST(OwnLimit, IsNamedWithTheRank) {
  const auto last_sleeps = [](int rank) {
    if (rank == 1) ::sleep(600);
  };
  static std::vector<int> codes;
  EXPECT_NONFATAL_FAILURE(codes = run_ranks(2, last_sleeps, std::chrono::seconds(1)),
                          "rank 1 of 2: expected it to end by itself, " + limit());
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

TEST(OwnLimit, SaysNothingOfAProgramThatIsKilledByAnother) {
  EXPECT_EQ(run({"sh", "-c", "kill -KILL $$"}).exit_code, 128 + SIGKILL);
}

}  // namespace
}  // namespace dtrain::test
