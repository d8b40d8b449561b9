#include "models/tasks/text_classification.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/tasks/fed_field.h"
#include "models/text/bert.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::string_view kTextTokens = "tokens", kSegments = "segments";

bool are_integers(const Field& field) {
  return (field.dtype == DType::i32 || field.dtype == DType::i64) && field.shape.rank() == 1;
}

/// Of `tokens` i64 [B, L] on a CPU: where the last one is that is no padding, over all rows; at least 1.
std::int64_t longest(const Tensor& tokens, std::int64_t padding) {
  const Tensor dense = tokens.contiguous();
  const std::int64_t rows = dense.size(0), length = dense.size(1);
  const auto* const all = dense.view().as<std::int64_t>();
  std::int64_t most = 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t end = length;
    while (end > most && all[row * length + end - 1] == padding) --end;
    most = std::max(most, end);
  }
  return most;
}

/// The model with only a classification head. Its config.json is then written again.
TextModel classifying(TextModel model, std::int64_t classes) {
  const BertHeads heads{.words = false, .next_sentence = false, .classes = classes};
  if (model.heads != heads) model.config.clear();
  model.heads = heads;
  return model;
}

}  // namespace

TextClassification::TextClassification(TextModel model) : model_(std::move(model)), classes_(model_.name) {
  if (model_.shape.family != TransformerFamily::bert) {
    throw UsageError(
        fmt::format("{}: expected a BERT, which can learn classification, got a model that predicts the next "
                    "token",
                    model_.name));
  }
}

std::size_t TextClassification::input_field(std::span<const std::string> names) const {
  const auto found = std::ranges::find(names, kTextTokens);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw UsageError(fmt::format("{}: expected samples with a field tokens, got none", model_.name));
}

TextModel TextClassification::model_for(std::span<const Field> fields) const {
  const Field *const tokens = find_field(fields, kTextTokens),
                     *const segments = find_field(fields, kSegments),
                     *const label = find_field(fields, kLabelField);
  const bool labelled =
      label != nullptr && label->dtype == DType::i64 && label->shape.rank() == 0 && label->values > 1;
  const bool fits = tokens != nullptr && are_integers(*tokens) &&
                    (segments == nullptr || (are_integers(*segments) && segments->shape == tokens->shape));
  if (!labelled || !fits) {
    throw UsageError(
        fmt::format("{}: expected samples with fields tokens (int32 or int64 [L]), label (int64 [], two "
                    "classes or more) and, if any, segments as tokens, got {}",
                    model_.name, describe(fields)));
  }
  TextModel model = classifying(model_, label->values);
  if (model.shape.vocabulary == 0) model.shape.vocabulary = tokens->values;
  if (model.shape.context == 0) model.shape.context = tokens->shape[0];
  if (model.shape.vocabulary < 1) {
    throw UsageError(
        fmt::format("{}: expected samples of tokens whose number is known, got {}; give a model "
                    "that has a vocabulary, as hf:DIR",
                    model_.name, describe(fields)));
  }
  if (tokens->shape[0] > model.shape.context || tokens->values > model.shape.vocabulary) {
    throw UsageError(fmt::format("{}: expected samples of at most {} tokens below {}, got {}", model_.name,
                                 model.shape.context, model.shape.vocabulary, describe(fields)));
  }
  return model;
}

std::optional<PublishedFormat> TextClassification::published_format(std::span<const Field> fields) const {
  return dtrain::published_format(model_for(fields));
}

std::unique_ptr<Module> TextClassification::build(std::span<const Field> fields, Generator& generator,
                                                  const std::shared_ptr<Device>& device) const {
  const TextModel model = model_for(fields);
  return std::make_unique<Bert>(model.shape, model.heads, generator, device);
}

std::unique_ptr<Module> TextClassification::build_tensor_parallel(std::span<const Field> fields,
                                                                  Generator& generator,
                                                                  const std::shared_ptr<Device>& device,
                                                                  const TensorParallelGroup& tp_group) const {
  const TextModel model = model_for(fields);
  return std::make_unique<Bert>(model.shape, model.heads, generator, device, &tp_group);
}

// What no row of the batch has is not computed. On a GPU that would wait for the tokens, and steps of one
// length can be recorded.
Tensors TextClassification::inputs(const BatchTensors& batch) const {
  Tensor tokens = batch[kTextTokens].to(DType::i64);
  Tensor segments = batch.contains(kSegments) ? batch[kSegments] : Tensor::zeros_like(tokens);
  if (!model_.shape.padding) return {tokens, segments};
  if (tokens.device().type() == DeviceType::cpu) {
    const std::int64_t most = longest(tokens, *model_.shape.padding);
    tokens = tokens.slice(1, 0, most).contiguous();
    segments = segments.slice(1, 0, most).contiguous();
  }
  const auto number = [&](double value) {
    return Tensor::full({}, value, tokens.shared_device(), tokens.dtype());
  };
  const Tensor is_padding = equal(tokens, number(static_cast<double>(*model_.shape.padding)));
  return {tokens, segments, where(is_padding, number(0), number(1))};
}

}  // namespace dtrain
