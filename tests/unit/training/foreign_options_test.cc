// What people who know other training programs type gets an answer that works.
#include "training/options/foreign_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "runtime/base/error.h"
#include "training/options/train_flags.h"

namespace dtrain {
namespace {

std::string refusal_of(const std::string& option) {
  try {
    resolve_options("dtrain train", train_options(), {option, "1"}, {}, foreign_train_options());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool is_known(const std::string& name) {
  return std::ranges::any_of(train_options(), [&](const OptionSpec& spec) { return spec.name == name; });
}

TEST(ForeignTrainOptions, AreNoneOfOurs) {
  for (const auto& [names, answer] : foreign_train_options()) {
    for (const std::string_view name : split_words(names))
      EXPECT_THAT(refusal_of(std::string(name)), testing::HasSubstr(std::string(answer))) << name;
  }
}

// --model is of the task, the launcher's options are behind its name.
TEST(ForeignTrainOptions, AnswersNameOptionsThatExist) {
  for (const auto& [names, answer] : foreign_train_options()) {
    const std::string text(answer);
    if (text.find("dtrain-launch") != text.npos) continue;
    const std::regex option("--([a-z-]+)");
    for (std::sregex_iterator at(text.begin(), text.end(), option), end; at != end; ++at)
      EXPECT_TRUE(is_known((*at)[1]) || (*at)[1] == "model") << text;
  }
}

TEST(ForeignTrainOptions, UsualNamesAreAnswered) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal_of("--learning-rate"), HasSubstr("the learning rate is --lr X"));
  EXPECT_THAT(refusal_of("--num_epochs=3"), HasSubstr("--epochs N"));
  EXPECT_THAT(refusal_of("--gpus=2"), HasSubstr("dtrain-launch --nproc-per-node=N"));
  EXPECT_THAT(refusal_of("-np"), HasSubstr("dtrain-launch --nproc-per-node=N"));
  for (const char* const other : {"--num-workers", "--pin-memory", "--no-shuffle", "--fp16", "--output_dir"})
    EXPECT_THAT(refusal_of(other), HasSubstr(std::string("unknown option ") + other + ": ")) << other;
}

}  // namespace
}  // namespace dtrain
