// What a start says of options that are not those of the start before.
#include "training/loop/resumed_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training/options/train_config.h"

namespace dtrain {
namespace {

using testing::HasSubstr;
using testing::Not;

Options given(const std::vector<std::string>& arguments) {
  return resolve_options("dtrain train", train_options(), arguments, {});
}

TEST(ResumedOptions, ThatChangedAreInOneLine) {
  const auto saved = noted_options(given({"--epochs", "10", "--lr", "0.1", "--clip-grad-norm", "1"}));
  EXPECT_EQ(changed_options(given({"--epochs", "10", "--lr", "1e-1", "--clip-grad-norm", "1"}), saved), "");
  EXPECT_EQ(changed_options(given({"--epochs", "20", "--lr", "0.1", "--betas", "0.9,0.95"}), saved),
            "--epochs 20 (10 before), --betas 0.9,0.95 (unset before), --clip-grad-norm unset (1 before)");
  EXPECT_EQ(changed_options(given({"--epochs", "20"}), {}), "") << "a checkpoint that says nothing";
}

TEST(ResumedOptions, AJumpOfTheRateIsReportedWithTheWayAroundIt) {
  const LrSchedule ten{LrKind::cosine, 0.1, 0, 100, 0, 0.1, 0.01},
      twenty{LrKind::cosine, 0.1, 0, 200, 0, 0.1, 0.01};
  std::map<std::string, std::string> saved = {noted_lr(ten.at(50))};
  EXPECT_EQ(lr_jump(ten, 50, true, saved), "");
  const std::string jump = lr_jump(twenty, 50, true, saved);
  EXPECT_THAT(jump, HasSubstr("would have used 0.055"));
  const double base = std::stod(jump.substr(jump.find("--lr ") + 5));
  EXPECT_NEAR(twenty.at(50, base), ten.at(50), 1e-5);
  EXPECT_THAT(lr_jump(twenty, 50, false, saved), Not(HasSubstr("--lr")));
  EXPECT_EQ(lr_jump(twenty, 50, true, {}), "");
}

}  // namespace
}  // namespace dtrain
