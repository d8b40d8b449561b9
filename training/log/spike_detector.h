// Which samples were in the batch whose loss went wrong: the first thing asked when it does.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrain {

/// One rank's; used by the training thread.
class SpikeDetector {
 public:
  /// A loss `factor` times the median of the last kWindow is a spike; 0: none is.
  explicit SpikeDetector(double factor) : factor_(factor) {}

  /// This rank takes `indices` in step `step`, once for each pass of it. Steps come in order.
  void take(std::int64_t step, std::span<const std::int64_t> indices);
  /// The loss of the oldest step that has none yet. The median before, where that makes it a spike.
  std::optional<double> judge(double loss);
  /// What this rank took in `step`; empty where that is long ago.
  std::vector<std::int64_t> samples_of(std::int64_t step) const;
  /// The run goes back: what follows is compared with what came before `step` no more.
  void forget();

  static constexpr std::size_t kWindow = 100;
  /// Losses before the first that can be a spike.
  static constexpr std::size_t kLeast = 20;

 private:
  struct Taken {
    std::int64_t step;
    std::vector<std::int64_t> indices;
  };
  // More than any device runs ahead.
  static constexpr std::size_t kSteps = 8;

  double factor_;
  std::deque<Taken> taken_;
  std::deque<double> losses_;
};

}  // namespace dtrain
