// How well scores rank the positive samples above the negative ones: metrics that are no sums over batches,
// exact over all samples, as scikit-learn has them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

/// Of many classes: the mean of each one's average_precision() against all others (sklearn.metrics.
/// average_precision_score of labels in columns, average="macro"). `scores` has a row for each sample with a
/// number for each class, `labels` the classes, from 0. Classes without a sample are left out, as
/// torchmetrics has it. Nothing where there is no sample or a score is not a number. Throws UsageError for
/// scores that are no rows of one length, and labels beyond them.
std::optional<double> mean_average_precision(std::span<const double> scores,
                                             std::span<const std::int64_t> labels);

}  // namespace dtrain
