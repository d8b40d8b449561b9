#include "models/tasks/language.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "models/tasks/asked_tokens.h"
#include "models/tasks/count_right.h"
#include "models/tasks/training_cost.h"
#include "models/text/generate.h"
#include "models/text/transformer.h"
#include "parallel/tensor/layers.h"
#include "runtime/autograd/ops/linear_cross_entropy.h"
#include "runtime/base/error.h"
#include "runtime/data/loader.h"

namespace dtrain {
namespace {

/// From so many words on logits are never in memory at once: below, they are no larger than what a block
/// keeps.
constexpr std::int64_t kManyWords = 4096;
constexpr std::int64_t kBytes = 256;  // words where tokens are bytes
constexpr std::size_t kShown = 64;    // tokens

Tensor by_token(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

TransformerShape Language::shape_for(std::span<const Field> fields) const {
  const Field& tokens = fields.front();
  const bool integers = tokens.dtype == DType::i32 || tokens.dtype == DType::i64;
  if (tokens.name != kTokens || !integers || tokens.shape.rank() != 1 || tokens.shape[0] < 2 ||
      tokens.values < 1) {
    throw UsageError(fmt::format(
        "{}: expected samples with a field tokens (int32 or int64 [2 or more], its number of values "
        "known), got {}; a text's bytes are such samples, and so are arrays with vocabulary=N",
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

std::optional<TrainingCost> Language::training_cost(std::span<const Field> fields) const {
  return dtrain::training_cost(shape_for(fields), fields.front().shape[0] - 1);
}

std::string Language::text_of(std::span<const std::int32_t> tokens, std::int64_t vocabulary) const {
  std::call_once(opened_, [&] {
    if (!model_.tokenizer.empty() || vocabulary == kBytes) words_.emplace(model_.tokenizer, vocabulary);
  });
  return words_ ? words_->decode(tokens) : fmt::format("{}", fmt::join(tokens, " "));
}

// All of the context is fed each time: ranks that split it have equal parts, and no token sees what is
// behind.
std::string Language::show(const ShowRequest& request) const {
  const Field& field = request.samples->fields().front();
  const std::int64_t context = field.shape[0] - 1;
  Loader loader(request.samples, make_device("cpu"), {.batch_size = 1});
  loader.start(
      {static_cast<std::int64_t>(request.number % static_cast<std::uint64_t>(request.samples->size()))}, 0);
  std::vector<std::int32_t> tokens = first_tokens(loader.next(Deadline::after(request.patience)).value(),
                                                  std::max<std::int64_t>(1, context / 4));
  const std::size_t given = tokens.size();
  const std::size_t most = std::min(static_cast<std::size_t>(context), given + kShown);
  Generator generator(request.number);
  while (tokens.size() < most) {
    std::vector<std::int32_t> padded = tokens;
    padded.resize(static_cast<std::size_t>(context), 0);
    const Tensors outputs = request.network({Tensor::from_data(padded, {1, context}, request.device)});
    std::int64_t next = 0;
    if (!outputs.empty()) {
      const Tensor last =
          outputs.front().select(0, 0).select(0, static_cast<std::int64_t>(tokens.size()) - 1);
      next = sample_tokens(last.to(DType::f32).to_vector<float>(), 1, {.temperature = 0.8, .top_k = 200},
                           generator)[0];
    }
    tokens.push_back(static_cast<std::int32_t>(request.agreed(next)));
  }
  const std::span<const std::int32_t> all = tokens;
  return text_of(all.first(given), field.values) + " → " + text_of(all.subspan(given), field.values);
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
