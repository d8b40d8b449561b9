// What a training run left behind, and how far two runs are apart.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dtrain::test {

struct Trained {
  std::vector<double> losses;
  std::vector<double> accuracies;  ///< of the last evaluation, which ends each run; none without one
  /// Of the newest checkpoint, in however many files it is, with averages of weights where it has them.
  std::map<std::string, std::vector<double>> weights;
};

Trained trained_in(const std::filesystem::path& run_dir);

/// The largest differences; infinite where one has other tensors, or more losses, than the other.
struct Difference {
  double losses = 0, accuracies = 0, weights = 0;
  bool equal_bits() const { return losses == 0 && accuracies == 0 && weights == 0; }
};

Difference difference(const Trained& got, const Trained& wanted);

}  // namespace dtrain::test
