#include "models/tasks/classification.h"

#include <fmt/format.h>

#include "models/tasks/count_right.h"
#include "models/vision/network.h"
#include "models/vision/resnet.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/base/error.h"

namespace dtrain {
std::unique_ptr<Module> Classification::build(std::span<const Field> fields, Generator& generator,
                                              const std::shared_ptr<Device>& device) const {
  const Field* label = find_field(fields, kLabelField);
  if (label == nullptr || label->dtype != DType::i64 || label->shape.rank() != 0 || label->values < 1) {
    throw UsageError(
        fmt::format("{}: expected samples with a field label (int64 [], its number of classes known), got "
                    "{}; choose the task "
                    "regression for numbers",
                    model_, describe(fields)));
  }
  const auto weights = static_cast<std::int64_t>(targets_.class_weights.size());
  if (weights > 0 && weights != label->values) {
    throw UsageError(
        fmt::format("{}: expected a weight for each of {} classes, got {}", model_, label->values, weights));
  }
  auto network = make_network(model_, network_input(dtrain::input_field(*this, fields), label->values),
                              generator, device);
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
  if (targets_.any()) {
    const bool is_mixed = batch.contains(MixedSource::kField);
    return soft_cross_entropy(outputs.front(), batch[kLabelField],
                              is_mixed ? &batch[MixedSource::kField] : nullptr, targets_.smoothing);
  }
  const std::vector<float>& weights = targets_.class_weights;
  if (weights.empty()) return cross_entropy(outputs.front(), batch[kLabelField]);
  const Tensor weight = Tensor::from_data(weights, {static_cast<std::int64_t>(weights.size())},
                                          outputs.front().shared_device());
  return cross_entropy(outputs.front(), batch[kLabelField], {.weight = weight});
}

double Classification::units(const Batch& batch) const {
  if (targets_.class_weights.empty()) return Task::units(batch);
  const View& labels = batch[kLabelField];
  double sum = 0;
  for (std::int64_t i = 0; i < batch.size(); ++i)
    sum += targets_.class_weights.at(static_cast<std::size_t>(labels.as<std::int64_t>()[i]));
  return sum;
}

void Classification::add_up(const Tensors& outputs, const BatchTensors& batch, double /*units*/,
                            std::span<double> sums) const {
  const Tensor& logits = outputs.front();  // [B, classes]
  sums[0] += cross_entropy(logits, batch[kLabelField], LossReduction::sum).item();
  sums[1] += static_cast<double>(count_right(logits, batch[kLabelField]));
  if (logits.size(1) < kTopFiveFrom) return;
  sums[2] += static_cast<double>(count_among_first(logits, batch[kLabelField], 5));
  sums[3] += static_cast<double>(logits.size(0));
}

Evaluation Classification::evaluation(std::span<const double> sums, std::int64_t samples) const {
  const auto count = static_cast<double>(samples);
  Evaluation found{.loss = sums[0] / count, .metrics = {{"accuracy", sums[1] / count}}};
  if (sums[3] > 0) found.metrics.emplace_back("top5_accuracy", sums[2] / sums[3]);
  return found;
}

}  // namespace dtrain
