#include "models/tasks/language.h"

#include <fmt/format.h>

#include <cmath>

#include "models/tasks/asked_tokens.h"
#include "models/tasks/count_right.h"
#include "models/text/transformer.h"
#include "parallel/tensor/layers.h"
#include "runtime/autograd/ops/linear_cross_entropy.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::string_view kTokens = "tokens";
/// From so many words on logits are never in memory at once: below, they are no larger than what a block
/// keeps.
constexpr std::int64_t kManyWords = 4096;

Tensor by_token(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

TransformerShape Language::shape_for(std::span<const Field> fields) const {
  const Field& tokens = fields.front();
  const bool integers = tokens.dtype == DType::i32 || tokens.dtype == DType::i64;
  if (tokens.name != kTokens || !integers || tokens.shape.rank() != 1 || tokens.shape[0] < 2 ||
      tokens.values < 1) {
    throw UsageError(fmt::format(
        "{}: expected samples with a field tokens (int32 or int64 [2 or more], its number of values "
        "known), got {}; a text's bytes are such samples",
        model_.name, describe(fields)));
  }
  check_asked(model_.name, fields);
  TransformerShape shape = model_.shape;
  const std::int64_t context = tokens.shape[0] - 1;
  if (shape.vocabulary == 0) shape.vocabulary = tokens.values;
  if (shape.context == 0) shape.context = context;
  if (tokens.values > shape.vocabulary || context > shape.context) {
    throw UsageError(fmt::format(
        "{}: expected samples of at most {} tokens below {}, got {} tokens below {}; give a shorter "
        "context=, or the tokenizer of this model",
        model_.name, shape.context, shape.vocabulary, context, tokens.values));
  }
  return shape;
}

std::optional<PublishedFormat> Language::published_format(std::span<const Field> fields) const {
  TextModel model = model_;
  model.shape = shape_for(fields);
  return dtrain::published_format(model);
}

std::unique_ptr<Module> Language::build(std::span<const Field> fields, Generator& generator,
                                        const std::shared_ptr<Device>& device) const {
  auto network = std::make_unique<Transformer>(shape_for(fields), generator, device);
  if (network->shape().vocabulary >= kManyWords) network->leave_head_to_loss();
  return network;
}

std::unique_ptr<Module> Language::build_tensor_parallel(std::span<const Field> fields, Generator& generator,
                                                        const std::shared_ptr<Device>& device,
                                                        const TensorParallelGroup& tp_group) const {
  const TransformerShape shape = shape_for(fields);
  if (model_.shape.vocabulary == 0 && !splits_words(shape, tp_group)) {
    throw UsageError(fmt::format("{}: expected a vocabulary that is a multiple of the {} workers, got {}",
                                 model_.name, tp_group.group.communicator.size(), shape.vocabulary));
  }
  return std::make_unique<Transformer>(shape, generator, device, &tp_group);
}

Tensors Language::inputs(const BatchTensors& batch) const { return fed_tokens(batch); }

bool Language::units_vary(std::span<const Field> fields) const { return asked_vary(fields); }

double Language::units(const Batch& batch) const {
  return asked_vary(batch.fields()) ? count_asked(batch) : Task::units(batch);
}

// Logits, or what they are made of: see Transformer::leave_head_to_loss().
Tensor Language::loss(const Tensors& outputs, const BatchTensors& batch) const {
  const Tensor target = targets_of(batch);
  const auto ignored = ignored_of(batch);
  if (outputs.size() == 2)
    return linear_cross_entropy(by_token(outputs[0]), outputs[1], target, {.ignore_index = ignored});
  return cross_entropy(by_token(outputs.front()), target, LossReduction::mean, ignored);
}

Tensor Language::loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                                      const TensorParallelGroup& tp_group) const {
  const Tensor logits = by_token(outputs.front());
  const bool splits = model_.shape.vocabulary == 0 || splits_words(model_.shape, tp_group);
  const Tensor target = targets_of(batch);
  const auto ignored = ignored_of(batch);
  if (!splits) return cross_entropy(logits, target, LossReduction::mean, ignored);
  return vocab_parallel_cross_entropy(logits, target, tp_group.group, "loss", ignored);
}

void Language::add_up(const Tensors& outputs, const BatchTensors& batch, double units,
                      std::span<double> sums) const {
  const Tensor logits = by_token(outputs.front()), target = targets_of(batch);
  const auto ignored = ignored_of(batch);
  sums[0] += cross_entropy(logits, target, LossReduction::sum, ignored).item();
  sums[1] += static_cast<double>(count_right(logits, target));
  sums[2] += ignored ? units : static_cast<double>(target.numel());
}

Evaluation Language::evaluation(std::span<const double> sums, std::int64_t /*samples*/) const {
  const double loss = sums[0] / sums[2];
  return {.loss = loss, .metrics = {{"accuracy", sums[1] / sums[2]}, {"perplexity", std::exp(loss)}}};
}

}  // namespace dtrain
