// Runs that are resumed in other forms of parallelism give what they would have given without: the stories of
// resumed.txt, which says how they are written. And what the mean of epochs is, which some of them compare.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "tests/launch/stories.h"
#include "tests/launch/trained.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

struct Leg {
  int workers = 1;
  Words options;
};

struct Resumed {
  std::string name;
  std::vector<Leg> legs;
  char how = 0;  ///< of =, ~, ? and !, as in resumed.txt; 0: what others are compared with
  double bound = 0;
  std::string other = {};
};

/// What `text` ends with: how the run is compared, how close it is to be, and with which other.
void take_comparison(Resumed& run, std::string& text) {
  const std::size_t at = text.find_last_of("=~?!");
  if (at == std::string::npos || at == 0 || text[at - 1] != ' ') return;
  run.how = text[at];
  std::string rest = text.substr(at + 1);
  if (run.how != '=') {
    std::size_t read = 0;
    run.bound = std::stod(rest, &read);
    rest = rest.substr(read);
  }
  run.other = trimmed(rest);
  text = text.substr(0, at);
}

Resumed resumed_of(const Story& story, const Row& row) {
  Resumed run{row.name, {}};
  std::string text = row.text;
  take_comparison(run, text);
  std::istringstream legs(text);
  for (std::string leg; std::getline(legs, leg, '|');) {
    Words words = story.words(leg);
    const std::size_t at = words.at(0).find('@');
    const int workers = std::stoi(words[0]);
    words[0] = "--max-steps=" + words[0].substr(at + 1);
    run.legs.push_back({workers, words});
  }
  return run;
}

class ResumedForms : public testing::TestWithParam<Story> {
 protected:
  void SetUp() override { write_file(folder_ / "book.txt", learnable_text()); }

  /// Nothing where a leg fails.
  std::optional<Trained> train_through(const Resumed& run) const {
    for (const Leg& leg : run.legs) {
      const RunResult result = train(GetParam().training(leg.workers, leg.options, folder_ / run.name));
      EXPECT_EQ(result.exit_code, 0) << run.name << ", " << leg.options[0] << ": " << result.out
                                     << result.err;
      if (result.exit_code != 0) return std::nullopt;
    }
    return trained_in(folder_ / run.name);
  }

  static void compare(const Resumed& run, const Trained& got, const Trained& wanted) {
    ASSERT_EQ(got.losses.size(), wanted.losses.size()) << run.name;
    const Difference apart = difference(got, wanted);
    const std::string all = run.name + " and " + run.other + " differ by " + std::to_string(apart.losses) +
                            " (losses), " + std::to_string(apart.accuracies) + " (accuracies), " +
                            std::to_string(apart.weights) + " (weights)";
    if (run.how == '!') {
      EXPECT_NE(got.losses, wanted.losses) << run.name;
      EXPECT_NEAR(got.losses.back(), wanted.losses.back(), run.bound) << run.name;
      return;
    }
    EXPECT_LE(apart.losses, run.bound) << all;
    EXPECT_LE(apart.accuracies, run.how == '?' ? std::max(kAccuracyBound, run.bound) : 0) << all;
    if (run.how != '?') {
      EXPECT_EQ(apart.weights, 0) << all;
    }
  }

  static constexpr double kAccuracyBound = 0.01;
  TempDir folder_;
};

TEST_P(ResumedForms, GiveWhatTheyWouldHaveGiven) {
  std::map<std::string, Trained> trained;
  for (const Row& row : GetParam().rows) {
    const Resumed run = resumed_of(GetParam(), row);
    const auto result = train_through(run);
    if (!result) continue;
    ASSERT_FALSE(result->losses.empty()) << run.name;
    trained[run.name] = *result;
    if (run.how == 0) continue;
    ASSERT_TRUE(trained.contains(run.other)) << run.name << " is compared with " << run.other;
    compare(run, *result, trained[run.other]);
  }
}

// Of the weights at the ends of the second, third and fourth epoch of four steps, which shorter runs end
// with.
TEST(AveragedWeights, OfStochasticWeightAveragingAreTheMeanOfEpochs) {
  TempDir folder;
  const auto weights_after = [&](int epochs, Words more) {
    const std::string run = folder / std::to_string(epochs);
    more.insert(more.end(), {"--model", "lenet", "--dataset", "synthetic:1x28x28,10,64",
                             "--global-batch-size", "16", "--epochs", std::to_string(epochs), "--lr", "0.1"});
    const RunResult result = train({.start = Start::alone,
                                    .launcher_arguments = {},
                                    .arguments = more,
                                    .run_dir = run,
                                    .options = limited_to(std::chrono::seconds(60))});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return trained_in(run).weights;
  };
  const auto second = weights_after(2, {}), third = weights_after(3, {});
  const auto run = weights_after(4, {"--swa-from", "1"});
  ASSERT_TRUE(run.contains("conv1.weight.ema"));
  for (const auto& [name, values] : run) {
    if (name.ends_with(".ema")) continue;
    const auto &mean = run.at(name + ".ema"), &two = second.at(name), &three = third.at(name);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(mean[i], (two[i] + three[i] + values[i]) / 3, 1e-7) << name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, ResumedForms, testing::ValuesIn(stories_in(DTRAIN_STORIES)),
                         [](const auto& story) { return name_of_story(story.param); });

}  // namespace
}  // namespace dtrain::test
