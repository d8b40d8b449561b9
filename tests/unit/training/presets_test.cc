// A recipe says what nothing else says.
#include "training/options/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr OptionSpec kSpecs[] = {{"recipe", "", "NAME", "", ""},
                                 {"lr", "", "X", "0.1", ""},
                                 {"optimizer", "", "NAME", "sgd", ""},
                                 {"nesterov", "", "", "", ""},
                                 {"config", "", "FILE", "", ""}};
constexpr Preset kPresets[] = {{"small", "--lr 0.2"}, {"large", "--lr=0.3 --optimizer adamw --nesterov"}};

Options resolved(const std::vector<std::string>& arguments, std::span<const Preset> presets = kPresets) {
  return with_preset("p", kSpecs, resolve_options("p", kSpecs, arguments, {{"DTRAIN_OPTIMIZER", "lamb"}}),
                     presets);
}

TEST(Presets, SayWhatNothingElseSays) {
  test::TempDir folder;
  const std::string file = folder / "c.json";
  test::write_file(file, R"({"lr": 0.4, "recipe": "large"})");
  const Options from_file = resolved({"--config", file});
  EXPECT_EQ(from_file.text("lr"), "0.4");
  EXPECT_EQ(from_file.text("optimizer"), "lamb");
  EXPECT_TRUE(from_file.enabled("nesterov"));
  EXPECT_EQ(from_file.at("nesterov").source, "--recipe large");
  EXPECT_EQ(resolved({"--recipe", "small"}).text("lr"), "0.2");
  EXPECT_EQ(resolved({"--recipe", "small", "--lr", "7"}).text("lr"), "7");
  EXPECT_EQ(resolved({}).text("lr"), "0.1");
}

TEST(Presets, ThatAreNotThereAreRefused) {
  EXPECT_THAT(message_of([] {
                resolved({"--recipe", "smal"});
              }),
              AllOf(HasSubstr("one of small, large"), HasSubstr("did you mean")));
  EXPECT_THAT(message_of([] {
                resolved({"--recipe", "small"}, {});
              }),
              HasSubstr("this program has no recipes"));
}

}  // namespace
}  // namespace dtrain
