#include "runtime/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "runtime/base/error.h"

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

std::optional<double> mean_average_precision(std::span<const double> scores,
                                             std::span<const std::int64_t> labels) {
  if (labels.empty() && scores.empty()) return std::nullopt;
  if (labels.empty() || scores.empty() || scores.size() % labels.size() != 0) {
    throw UsageError("mean_average_precision: expected as many scores for each of " +
                     std::to_string(labels.size()) + " samples, got " + std::to_string(scores.size()) +
                     " in all");
  }
  const std::size_t classes = scores.size() / labels.size();
  for (const std::int64_t label : labels) {
    if (label >= 0 && label < static_cast<std::int64_t>(classes)) continue;
    throw UsageError("mean_average_precision: expected labels of 0 to " + std::to_string(classes - 1) +
                     ", got " + std::to_string(label));
  }
  double sum = 0, found = 0;
  std::vector<ScoredLabel> samples(labels.size());
  for (std::size_t c = 0; c < classes; ++c) {
    const auto is_of_class = [c](std::int64_t label) { return label == static_cast<std::int64_t>(c); };
    if (std::ranges::none_of(labels, is_of_class)) continue;
    for (std::size_t i = 0; i < labels.size(); ++i)
      samples[i] = {scores[i * classes + c], is_of_class(labels[i])};
    const auto precision = average_precision(samples);
    if (!precision) return std::nullopt;
    sum += *precision;
    found += 1;
  }
  return sum / found;
}

}  // namespace dtrain
