#include "models/tasks/classification.h"

#include <fmt/format.h>

#include "models/tasks/count_right.h"
#include "models/tasks/soft_labels.h"
#include "models/vision/network.h"
#include "models/vision/resnet.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/base/error.h"

namespace dtrain {

Splits Classification::open(const DataRequest& request) const {
  Splits splits = Task::open(request);
  check_soft_labels(*splits.train);
  check_soft_labels(*splits.test);
  return splits;
}

std::unique_ptr<Module> Classification::build(std::span<const Field> fields, Generator& generator,
                                              const std::shared_ptr<Device>& device) const {
  const Field* label = find_field(fields, kLabelField);
  const std::int64_t classes = label == nullptr ? 0 : classes_of_label(*label);
  if (classes < 1) {
    throw UsageError(
        fmt::format("{}: expected samples with a field label (int64 [], its number of classes known, or "
                    "their probabilities, float32 [classes]), got {}; choose the task regression for numbers",
                    model_, describe(fields)));
  }
  const auto weights = static_cast<std::int64_t>(targets_.class_weights.size());
  if (weights > 0 && weights != classes) {
    throw UsageError(
        fmt::format("{}: expected a weight for each of {} classes, got {}", model_, classes, weights));
  }
  auto network =
      make_network(model_, network_input(dtrain::input_field(*this, fields), classes), generator, device);
  if (zero_last_norms_ && zero_last_norms(*network) == 0) {
    throw UsageError(fmt::format(
        "{}: expected a residual network of torchvision's for norms that begin at 0, got another model",
        model_));
  }
  return network;
}

std::shared_ptr<const Source> Classification::for_training(std::shared_ptr<const Source> train) const {
  if (!targets_.mixing.any()) return train;
  std::vector<std::string> names;
  for (const Field& field : train->fields()) names.push_back(field.name);
  return std::make_shared<MixedSource>(train, input_field(names), targets_.mixing);
}

Tensors Classification::inputs(const BatchTensors& batch) const {
  Tensors fed = Task::inputs(batch);
  if (batch.contains(MixedSource::kField)) fed[0] = mixed(fed[0], batch[MixedSource::kField]);
  return fed;
}

Tensor Classification::loss(const Tensors& outputs, const BatchTensors& batch) const {
  const Tensor &logits = outputs.front(), &labels = batch[kLabelField];
  const std::vector<float>& weights = targets_.class_weights;
  Tensor weight;
  if (!weights.empty())
    weight = Tensor::from_data(weights, {static_cast<std::int64_t>(weights.size())}, logits.shared_device());
  if (targets_.mixing.any() || labels.rank() == 2 || (targets_.smoothing > 0 && !weight.defined())) {
    const bool is_mixed = batch.contains(MixedSource::kField);
    return soft_cross_entropy(logits, labels, is_mixed ? &batch[MixedSource::kField] : nullptr,
                              targets_.smoothing, weight);
  }
  if (!weight.defined()) return cross_entropy(logits, labels);
  return cross_entropy(logits, labels, {.label_smoothing = targets_.smoothing, .weight = weight});
}

double Classification::units(const Batch& batch) const {
  const View& labels = batch[kLabelField];
  if (targets_.class_weights.empty() || targets_.mixing.any() || labels.rank() == 2)
    return Task::units(batch);
  double sum = 0;
  for (std::int64_t i = 0; i < batch.size(); ++i)
    sum += targets_.class_weights.at(static_cast<std::size_t>(labels.as<std::int64_t>()[i]));
  return sum;
}

bool Classification::units_vary(std::span<const Field> fields) const {
  const Field* const label = find_field(fields, kLabelField);
  return !targets_.class_weights.empty() && !targets_.mixing.any() &&
         (label == nullptr || !is_soft_label(*label));
}

const Field* Classification::predicted_field(std::span<const Field> fields) const {
  const Field* const label = find_field(fields, kLabelField);
  return label != nullptr && is_soft_label(*label) ? nullptr : label;
}

void Classification::add_up(const Tensors& outputs, const BatchTensors& batch, double /*units*/,
                            std::span<double> sums) const {
  const Tensor& logits = outputs.front();  // [B, classes]
  const Tensor& labels = batch[kLabelField];
  sums[0] += labels.rank() == 2
                 ? soft_cross_entropy(logits, labels, nullptr, 0).item() * static_cast<double>(logits.size(0))
                 : cross_entropy(logits, labels, LossReduction::sum).item();
  const Tensor right = likeliest(labels);
  sums[1] += static_cast<double>(count_right(logits, right));
  if (logits.size(1) < kTopFiveFrom) return;
  sums[2] += static_cast<double>(count_among_first(logits, right, 5));
  sums[3] += static_cast<double>(logits.size(0));
}

Evaluation Classification::evaluation(std::span<const double> sums, std::int64_t samples) const {
  const auto count = static_cast<double>(samples);
  Evaluation found{.loss = sums[0] / count, .metrics = {{"accuracy", sums[1] / count}}};
  if (sums[3] > 0) found.metrics.emplace_back("top5_accuracy", sums[2] / sums[3]);
  return found;
}

}  // namespace dtrain
