#include "training/log/spike_detector.h"

#include <algorithm>
#include <cmath>

namespace dtrain {

void SpikeDetector::take(std::int64_t step, std::span<const std::int64_t> indices) {
  if (taken_.empty() || taken_.back().step != step) taken_.push_back({step, {}});
  taken_.back().indices.insert(taken_.back().indices.end(), indices.begin(), indices.end());
  if (taken_.size() > kSteps) taken_.pop_front();
}

std::optional<double> SpikeDetector::judge(double loss) {
  if (factor_ <= 0 || !std::isfinite(loss)) return std::nullopt;
  std::optional<double> spiked;
  if (losses_.size() >= kLeast) {
    std::vector<double> sorted(losses_.begin(), losses_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    if (loss > factor_ * *middle) spiked = *middle;
  }
  losses_.push_back(loss);
  if (losses_.size() > kWindow) losses_.pop_front();
  return spiked;
}

std::vector<std::int64_t> SpikeDetector::samples_of(std::int64_t step) const {
  const auto found = std::ranges::find(taken_, step, &Taken::step);
  return found == taken_.end() ? std::vector<std::int64_t>() : found->indices;
}

void SpikeDetector::forget() {
  taken_.clear();
  losses_.clear();
}

}  // namespace dtrain
