#include "training/engine/confusion_counter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Of a mistake in the sums: sample + 1 (0: none), label, predicted, probability.
constexpr std::size_t kNumbers = 4;

void sort_worst_first(std::vector<Mistake>& mistakes) {
  std::ranges::sort(mistakes, {}, [](const Mistake& one) { return std::tuple(one.probability, one.sample); });
  if (mistakes.size() > Confusion::kMostMistakes) mistakes.resize(Confusion::kMostMistakes);
}

/// Softmax of one number; 0 where it is none.
double probability(std::span<const float> logits, std::size_t of, float largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double share = std::exp(static_cast<double>(logits[of]) - largest) / sum;
  return std::isfinite(share) ? share : 0;
}

}  // namespace

ConfusionCounter::ConfusionCounter(const Field* field, int rank, int ranks)
    : classes_(field == nullptr ? 0 : field->values),
      shape_(field == nullptr ? Dims() : field->shape),
      rank_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(ranks)) {
  own_.counts.resize(table_size());
}

std::size_t ConfusionCounter::table_size() const noexcept {
  return classes_ > Confusion::kMostClasses ? 0 : static_cast<std::size_t>(classes_ * classes_);
}

std::size_t ConfusionCounter::sum_count() const noexcept {
  return counts() ? table_size() + ranks_ * Confusion::kMostMistakes * kNumbers : 0;
}

void ConfusionCounter::add(const Tensor& logits, const Tensor& labels,
                           std::span<const std::int64_t> indices) {
  const auto count = static_cast<std::int64_t>(indices.size());
  Dims expected_logits = {count, classes_}, expected_labels = {count};
  for (const std::int64_t extent : shape_) {
    expected_logits.push_back(extent);
    expected_labels.push_back(extent);
  }
  if (logits.shape() != expected_logits || labels.shape() != expected_labels ||
      labels.dtype() != DType::i64) {
    throw UsageError(fmt::format("evaluation: expected logits {} and labels int64 {}, got {} and {}",
                                 expected_logits.to_string(), expected_labels.to_string(),
                                 logits.shape().to_string(), labels.shape().to_string()));
  }
  if (shape_.rank() > 0) return add_pixels(logits, labels);
  const auto numbers = logits.to(DType::f32).to_vector<float>();
  const auto right = labels.to_vector<std::int64_t>();
  const auto classes = static_cast<std::size_t>(classes_);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (right[i] < 0 || right[i] >= classes_) continue;  // of no class: ignored by the loss too
    const auto row = std::span(numbers).subspan(i * classes, classes);
    const auto largest = std::ranges::max_element(row);
    const auto predicted = static_cast<std::int64_t>(largest - row.begin());
    const auto label = static_cast<std::size_t>(right[i]);
    if (!own_.counts.empty()) ++own_.counts[label * classes + static_cast<std::size_t>(predicted)];
    if (predicted != right[i])
      own_.worst.push_back({indices[i], right[i], predicted, probability(row, label, *largest)});
  }
  if (own_.worst.size() > 16 * Confusion::kMostMistakes) sort_worst_first(own_.worst);
}

void ConfusionCounter::add_pixels(const Tensor& logits, const Tensor& labels) {
  const auto predicted = argmax(logits, 1).to_vector<std::int64_t>();
  const auto right = labels.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < right.size() && !own_.counts.empty(); ++i) {
    if (right[i] >= 0 && right[i] < classes_)
      ++own_.counts[static_cast<std::size_t>(right[i] * classes_ + predicted[i])];
  }
}

void ConfusionCounter::write(std::span<double> sums) const {
  if (!counts()) return;
  std::ranges::transform(own_.counts, sums.begin(),
                         [](std::int64_t count) { return static_cast<double>(count); });
  std::vector<Mistake> worst = own_.worst;
  sort_worst_first(worst);
  auto slot = sums.subspan(table_size() + rank_ * Confusion::kMostMistakes * kNumbers);
  for (const Mistake& mistake : worst) {
    slot[0] = static_cast<double>(mistake.sample + 1);
    slot[1] = static_cast<double>(mistake.label);
    slot[2] = static_cast<double>(mistake.predicted);
    slot[3] = mistake.probability;
    slot = slot.subspan(kNumbers);
  }
}

Confusion ConfusionCounter::read(std::span<const double> sums) const {
  Confusion all{.classes = classes_};
  for (const double count : sums.first(table_size())) all.counts.push_back(static_cast<std::int64_t>(count));
  for (auto slot = sums.subspan(table_size()); !slot.empty(); slot = slot.subspan(kNumbers)) {
    if (slot[0] == 0) continue;
    all.worst.push_back({static_cast<std::int64_t>(slot[0]) - 1, static_cast<std::int64_t>(slot[1]),
                         static_cast<std::int64_t>(slot[2]), slot[3]});
  }
  sort_worst_first(all.worst);
  return all;
}

}  // namespace dtrain
