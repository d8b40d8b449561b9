// Ranking metrics: the values of scikit-learn's documentation, and, of random scores with ties, those of the
// definitions, which look at every pair and every threshold.
#include "runtime/metrics/ranking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace dtrain {
namespace {

std::vector<ScoredLabel> draw(std::uint64_t seed, std::size_t count, float levels) {
  Generator generator(seed);
  std::vector<float> drawn(2 * count);
  generator.uniform(std::span(drawn), 0, 1);
  std::vector<ScoredLabel> samples;
  for (std::size_t i = 0; i < count; ++i)
    samples.push_back({std::floor(drawn[2 * i] * levels), drawn[2 * i + 1] < 0.3F + 0.4F * drawn[2 * i]});
  return samples;
}

double auc_by_pairs(const std::vector<ScoredLabel>& samples) {
  double won = 0, pairs = 0;
  for (const auto& a : samples) {
    for (const auto& b : samples) {
      if (!a.positive || b.positive) continue;
      pairs += 1;
      won += a.score > b.score ? 1 : a.score == b.score ? 0.5 : 0;
    }
  }
  return won / pairs;
}

double precision_by_thresholds(const std::vector<ScoredLabel>& samples) {
  std::set<double, std::greater<>> thresholds;
  double positives = 0;
  for (const auto& one : samples) thresholds.insert(one.score), positives += one.positive ? 1 : 0;
  double sum = 0, recall = 0;
  for (const double threshold : thresholds) {
    double right = 0, taken = 0;
    for (const auto& one : samples) {
      if (one.score < threshold) continue;
      taken += 1;
      right += one.positive ? 1 : 0;
    }
    sum += (right / positives - recall) * (right / taken);
    recall = right / positives;
  }
  return sum;
}

TEST(Ranking, HasTheValuesOfTheDocumentation) {
  const std::vector<ScoredLabel> samples = {{0.1, false}, {0.4, false}, {0.35, true}, {0.8, true}};
  EXPECT_DOUBLE_EQ(roc_auc(samples).value(), 0.75);
  EXPECT_NEAR(average_precision(samples).value(), 0.83333333333333, 1e-12);
}

TEST(Ranking, FollowsTheDefinitionsWithTies) {
  for (const float levels : {3.0F, 20.0F, 1e6F}) {
    const auto samples = draw(static_cast<std::uint64_t>(levels), 300, levels);
    EXPECT_NEAR(roc_auc(samples).value(), auc_by_pairs(samples), 1e-12) << levels;
    EXPECT_NEAR(average_precision(samples).value(), precision_by_thresholds(samples), 1e-12) << levels;
  }
}

TEST(Ranking, IsNothingWhereItHasNoMeaning) {
  EXPECT_FALSE(roc_auc({}));
  EXPECT_FALSE(roc_auc({{1, true}, {2, true}}));
  EXPECT_FALSE(roc_auc({{1, false}}));
  EXPECT_FALSE(average_precision({{1, false}}));
  EXPECT_FALSE(roc_auc({{std::nan(""), true}, {2, false}}));
  EXPECT_DOUBLE_EQ(average_precision({{1, true}}).value(), 1);
}

// scikit-learn 1.9: average_precision_score(eye(3)[labels], scores, average="macro").
TEST(Ranking, OfManyClassesIsTheirMean) {
  const std::vector<double> scores = {.7, .2, .1, .1, .8, .1, .2, .3,  .5, .5, .4,
                                      .1, .3, .3, .4, .6, .3, .1, .25, .5, .25};
  const std::vector<std::int64_t> labels = {0, 1, 2, 1, 0, 2, 1};
  EXPECT_DOUBLE_EQ(mean_average_precision(scores, labels).value(), 0.7976190476190476);
  // Class 1 has no sample: the mean of the two others.
  const std::vector<double> three = {.9, .5, .1, .2, .9, .7, .4, .1, .3};
  EXPECT_DOUBLE_EQ(mean_average_precision(three, std::vector<std::int64_t>{0, 2, 0}).value(), 1);
  EXPECT_FALSE(mean_average_precision({}, {}));
  EXPECT_FALSE(mean_average_precision(std::vector<double>{std::nan(""), 1}, std::vector<std::int64_t>{0}));
  EXPECT_THROW(mean_average_precision(three, std::vector<std::int64_t>{0, 3, 0}), UsageError);
  EXPECT_THROW(mean_average_precision(three, std::vector<std::int64_t>{0, 1}), UsageError);
}

}  // namespace
}  // namespace dtrain
