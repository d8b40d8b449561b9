#include "training/task.h"

#include <fmt/format.h>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"
#include "runtime/metrics/ranking.h"

namespace dtrain {

double Evaluation::operator[](std::string_view metric) const {
  std::string names;
  for (const auto& [name, value] : metrics) {
    if (name == metric) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  throw UsageError(fmt::format("evaluation: expected one of its metrics ({}), got '{}'",
                               names.empty() ? "there are none" : names, metric));
}

Splits Task::open(const DataRequest& request) const {
  return open_splits(request.dataset, {.data_dir = request.data_dir,
                                       .log = request.log,
                                       .augment = request.augment,
                                       .on_bad_sample = request.on_bad_sample,
                                       .picture_cache_bytes = request.picture_cache_bytes});
}

std::size_t Task::input_field(std::span<const std::string> /*names*/) const { return 0; }

Tensors Task::inputs(const BatchTensors& batch) const {
  return {batch.tensors()[input_field(batch.names())]};
}

std::vector<Field> Task::fields_in_use(std::span<const Field> fields) const {
  return {fields.begin(), fields.end()};
}

const Field& input_field(const Task& task, std::span<const Field> fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(field.name);
  return fields[task.input_field(names)];
}

std::optional<PublishedFormat> Task::published_format(std::span<const Field> /*fields*/) const {
  return std::nullopt;
}

std::string Task::show(const ShowRequest& /*request*/) const { return ""; }

std::unique_ptr<Module> Task::build_tensor_parallel(std::span<const Field> /*fields*/,
                                                    Generator& /*generator*/,
                                                    const std::shared_ptr<Device>& /*device*/,
                                                    const TensorParallelGroup& /*tp_group*/) const {
  throw UsageError("--tensor: expected a model that supports tensor parallelism (transformer), got " +
                   name());
}

Tensor Task::loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                                  const TensorParallelGroup& /*tp_group*/) const {
  return loss(outputs, batch);
}

double Task::units(const Batch& batch) const { return static_cast<double>(batch.size()); }

void Task::add_up(const Tensors& outputs, const BatchTensors& batch, double units,
                  std::span<double> sums) const {
  sums[0] += loss(outputs, batch).item() * units;
  sums[1] += units;
}

Evaluation Task::evaluation(std::span<const double> sums, std::int64_t /*samples*/) const {
  return {.loss = sums[0] / sums[1], .metrics = {}};
}

std::size_t Task::kept_count(std::span<const Field> fields) const {
  const Field* const predicted = predicted_field(fields);
  return predicted != nullptr && predicted->values == 2 ? 2 : 0;
}

// By how much class 1 is ahead, and the label. Only a classifier of two classes comes here.
Tensor Task::keep(const Tensors& outputs, const BatchTensors& batch, std::span<const Field> fields) const {
  const Tensor logits = outputs.front().to(DType::f64);
  const Tensor label = batch[predicted_field(fields)->name].to(DType::f64);
  return stack({sub(logits.select(1, 1), logits.select(1, 0)), label}, 1);
}

void Task::add_kept(std::span<const double> kept, Evaluation& found) const {
  std::vector<ScoredLabel> samples(kept.size() / 2);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = {kept[2 * i], kept[2 * i + 1] > 0.5};
  const auto precision = average_precision(samples), area = roc_auc(std::move(samples));
  if (!area) return;  // of one class alone
  found.metrics.emplace_back("auc", *area);
  found.metrics.emplace_back("average_precision", *precision);
}

}  // namespace dtrain
