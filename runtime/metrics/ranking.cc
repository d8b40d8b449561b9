#include "runtime/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace dtrain {
namespace {

/// Calls `at(positives, negatives)` for each score, from the highest, with how many samples have it. Returns
/// false, and calls nothing, where a score is not a number.
template <class At>
bool for_each_score(std::vector<ScoredLabel>& samples, At at) {
  if (std::ranges::any_of(samples, [](const ScoredLabel& one) { return std::isnan(one.score); }))
    return false;
  std::ranges::sort(samples, std::greater<>(), &ScoredLabel::score);
  for (std::size_t i = 0; i < samples.size();) {
    const double score = samples[i].score;
    double positives = 0, negatives = 0;
    for (; i < samples.size() && samples[i].score == score; ++i)
      (samples[i].positive ? positives : negatives) += 1;
    at(positives, negatives);
  }
  return true;
}

}  // namespace

std::optional<double> roc_auc(std::vector<ScoredLabel> samples) {
  double positives = 0, negatives = 0, won = 0;  // pairs of a positive and a negative below it, twice
  const bool known = for_each_score(samples, [&](double here, double against) {
    won += against * (2 * positives + here);
    positives += here;
    negatives += against;
  });
  if (!known || positives == 0 || negatives == 0) return std::nullopt;
  return won / 2 / positives / negatives;
}

std::optional<double> average_precision(std::vector<ScoredLabel> samples) {
  double positives = 0, all = 0, sum = 0;
  const bool known = for_each_score(samples, [&](double here, double against) {
    positives += here;
    all += here + against;
    sum += here * (positives / all);
  });
  if (!known || positives == 0) return std::nullopt;
  return sum / positives;
}

}  // namespace dtrain
