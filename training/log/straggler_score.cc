// The median over the window, not the mean: a rank that was held up once, for however long, is none.
#include "training/log/straggler_score.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace dtrain {
namespace {

constexpr std::size_t kLeastSamples = 2;
constexpr int kSamplesOfWindow = 24;

/// The lower one of two.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// `mean` takes in a `newest` that has this share of all.
void move_towards(StepSeconds& mean, const StepSeconds& newest, double share) {
  mean.data += share * (newest.data - mean.data);
  mean.compute += share * (newest.compute - mean.compute);
  mean.step += share * (newest.step - mean.step);
}

}  // namespace

StragglerScore::StragglerScore(std::vector<int> alike, Duration window)
    : alike_(std::move(alike)), window_(window) {}

std::vector<StragglerChange> StragglerScore::add(Duration elapsed, std::span<const StepSeconds> ranks) {
  take(elapsed, ranks);
  if (gathered_time_ < window_ / kSamplesOfWindow) return {};
  end_sample();
  std::vector<StragglerChange> changes;
  if (samples_.size() < kLeastSamples || covered_ < window_) return changes;
  slow_.resize(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    StragglerChange found = score_of(rank);
    const bool costs = found.seconds.own() - found.others.own() >= kLeastShare * found.seconds.step;
    const bool slow = costs && found.ratio >= (slow_[rank] ? kRecovered : kSlow);
    if (slow == slow_[rank]) continue;
    slow_[rank] = slow;
    if (!slow) found.slowness = {};
    changes.push_back(found);
  }
  return changes;
}

void StragglerScore::take(Duration elapsed, std::span<const StepSeconds> ranks) {
  gathered_.resize(ranks.size());
  gathered_time_ += elapsed;
  const double weight = gathered_time_.count() > 0 ? in_seconds(elapsed) / in_seconds(gathered_time_) : 1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) move_towards(gathered_[rank], ranks[rank], weight);
}

void StragglerScore::end_sample() {
  Sample sample{std::exchange(gathered_time_, {}), {}};
  for (std::size_t rank = 0; rank < gathered_.size(); ++rank) sample.ranks.push_back(measured(rank));
  gathered_.clear();
  covered_ += sample.elapsed;
  samples_.push_back(std::move(sample));
  while (samples_.size() > kLeastSamples && covered_ - samples_.front().elapsed >= window_) {
    covered_ -= samples_.front().elapsed;
    samples_.pop_front();
  }
}

std::vector<const StepSeconds*> StragglerScore::others_of(std::size_t rank) const {
  std::vector<const StepSeconds*> others;
  for (std::size_t other = 0; other < gathered_.size(); ++other) {
    if (other != rank && (alike_.empty() || alike_[other] == alike_[rank]))
      others.push_back(&gathered_[other]);
  }
  return others;
}

StragglerScore::Measured StragglerScore::measured(std::size_t rank) const {
  Measured found{.seconds = gathered_[rank], .others = gathered_[rank]};
  const auto others = others_of(rank);
  if (others.empty()) return found;  // nobody to compare it with
  const auto median = [&others](auto value) {
    std::vector<double> values;
    for (const StepSeconds* other : others) values.push_back(std::invoke(value, *other));
    return median_of(std::move(values));
  };
  found.others = {median(&StepSeconds::data), median(&StepSeconds::compute), median(&StepSeconds::step)};
  const double own = median(&StepSeconds::own);
  if (own > 0) found.ratio = found.seconds.own() / own;
  return found;
}

StragglerChange StragglerScore::score_of(std::size_t rank) const {
  StragglerChange found{.rank = static_cast<int>(rank)};
  std::vector<double> ratios;
  Duration before{};
  for (const Sample& sample : samples_) {
    before += sample.elapsed;
    const double weight = in_seconds(sample.elapsed) / in_seconds(before);
    const Measured& measured = sample.ranks[rank];
    ratios.push_back(measured.ratio);
    move_towards(found.seconds, measured.seconds, weight);
    move_towards(found.others, measured.others, weight);
  }
  found.ratio = median_of(std::move(ratios));
  const bool data = found.seconds.data - found.others.data > found.seconds.compute - found.others.compute;
  found.slowness = {data ? StragglerPhase::data : StragglerPhase::compute, found.ratio};
  return found;
}

}  // namespace dtrain
