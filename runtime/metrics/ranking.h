// How well scores rank the positive samples above the negative ones: metrics that are no sums over batches,
// exact over all samples, as scikit-learn has them.
#pragma once

#include <optional>
#include <vector>

namespace dtrain {

struct ScoredLabel {
  double score = 0;
  bool positive = false;
};

/// The area under the ROC curve: the chance that a positive has a higher score than a negative, where equal
/// scores count half (sklearn.metrics.roc_auc_score). Nothing where one of both is missing or a score is not
/// a number. O(n log n).
std::optional<double> roc_auc(std::vector<ScoredLabel> samples);

/// The precision at each score, averaged over the recall that it adds (sklearn.metrics.
/// average_precision_score); equal scores are one step. Nothing without a positive or where a score is not a
/// number. O(n log n).
std::optional<double> average_precision(std::vector<ScoredLabel> samples);

}  // namespace dtrain
