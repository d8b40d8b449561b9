// How often a classifier predicts each class for each label, over all samples of an evaluation.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrain {

/// A sample whose most probable class is not its label.
struct Mistake {
  std::int64_t sample = 0;  ///< its index in the source
  std::int64_t label = 0, predicted = 0;
  double probability = 0;  ///< that the network gives the label
};

/// The confusion matrix, and the worst mistakes. Of a task that labels pixels it counts pixels, and keeps no
/// mistakes.
struct Confusion {
  /// With more classes than this nothing is counted: the matrix would be larger than a step's gradients.
  static constexpr std::int64_t kMostClasses = 1000;
  /// How many mistakes are kept, over all ranks.
  static constexpr std::size_t kMostMistakes = 24;

  std::int64_t classes = 0;
  /// Samples by label and predicted class, [classes, classes]; empty for more than kMostClasses.
  std::vector<std::int64_t> counts = {};
  std::vector<Mistake> worst = {};  ///< least probable label first, then by sample
};

}  // namespace dtrain
