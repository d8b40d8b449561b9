// Helpers are read to their end, or killed at the deadline.
#include "launcher/system/helper.h"

#include <gtest/gtest.h>

namespace dtrain::launcher {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

TEST(Helper, ItsOutputAndCodeComeBack) {
  const HelperResult result = run_helper({"sh", "-c", "read x; echo \"[$x]\"; exit 3"}, soon());
  EXPECT_EQ(result.out, "[]\n") << "its input is empty";
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(result.timed_out);
}

TEST(Helper, OneThatIsNotThereIs127) {
  EXPECT_EQ(run_helper({"/nonexistent/helper"}, soon()).exit_code, 127);
}

TEST(Helper, ItDoesNotOutliveTheDeadline) {
  const HelperResult result =
      run_helper({"sh", "-c", "echo first; exec sleep 60"}, Deadline::after(std::chrono::milliseconds(200)));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + 15);
  EXPECT_EQ(result.out, "first\n");
}

TEST(Helper, ItMayPutThingsInOrderBeforeItIsKilled) {
  const std::string wait = "echo first; while :; do sleep 0.02; done";
  const auto code = [&](const std::string& trap) {
    return run_helper({"sh", "-c", trap + wait}, Deadline::after(std::chrono::seconds(2))).exit_code;
  };
  EXPECT_EQ(code("trap 'exit 3' TERM; "), 3);
  EXPECT_EQ(code("trap '' TERM; "), 128 + 9);
}

TEST(Helper, EndlessOutputIsCut) {
  const HelperResult result = run_helper({"sh", "-c", "head -c 1000000 /dev/zero"}, soon());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_LT(result.out.size(), 100000u);
}

}  // namespace
}  // namespace dtrain::launcher
