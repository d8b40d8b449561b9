#include "models/tasks/masked_language.h"

#include <fmt/format.h>

#include "models/tasks/count_right.h"
#include "models/tasks/masked_word_source.h"
#include "models/text/bert.h"
#include "parallel/tensor/layers.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// What is asked for, [B · M].
Tensor wanted(const BatchTensors& batch) { return batch["words"].reshape({-1}); }

Tensor by_word(const Tensor& logits) { return logits.reshape({-1, logits.size(-1)}); }

}  // namespace

MaskedLanguage::MaskedLanguage(TextModel model) : model_(std::move(model)) {
  if (!model_.heads.words) {
    throw UsageError(
        fmt::format("{}: expected a model with a head for masked words, got one that classifies; its task is "
                    "classification",
                    model_.name));
  }
}

Splits MaskedLanguage::open(const DataRequest& request) const {
  const Splits windows = Task::open(request);
  const MaskedWordOptions options{.pairs = model_.heads.next_sentence};
  const auto masked = [&](const std::shared_ptr<const Source>& source) {
    return std::make_shared<const MaskedWordSource>(
        source, bert_tokens(model_, source->fields().front().values), options);
  };
  return {masked(windows.train), masked(windows.test)};
}

TransformerShape MaskedLanguage::shape_for(std::span<const Field> fields) const {
  const Field* const tokens = find_field(fields, "tokens");
  if (tokens == nullptr || find_field(fields, "words") == nullptr) {
    throw UsageError(
        fmt::format("{}: expected samples with masked words, got {}", model_.name, describe(fields)));
  }
  TransformerShape shape = model_.shape;
  if (shape.vocabulary == 0) shape.vocabulary = tokens->values;
  if (shape.context == 0) shape.context = tokens->shape[0];
  if (tokens->shape[0] > shape.context) {
    throw UsageError(fmt::format("{}: expected samples of at most {} tokens, got {}; give a shorter context=",
                                 model_.name, shape.context, tokens->shape[0]));
  }
  return shape;
}

std::optional<PublishedFormat> MaskedLanguage::published_format(std::span<const Field> fields) const {
  TextModel model = model_;
  model.shape = shape_for(fields);
  if (model_.shape.vocabulary == 0) {  // whose tokens are numbered here, and by no tokenizer beside it
    const BertTokens tokens = bert_tokens(model_, find_field(fields, "words")->values);
    model.config = config_with(text_config(model.shape, model.heads), tokens);
  }
  return dtrain::published_format(model);
}

std::unique_ptr<Module> MaskedLanguage::build(std::span<const Field> fields, Generator& generator,
                                              const std::shared_ptr<Device>& device) const {
  return std::make_unique<Bert>(shape_for(fields), model_.heads, generator, device);
}

std::unique_ptr<Module> MaskedLanguage::build_tensor_parallel(std::span<const Field> fields,
                                                              Generator& generator,
                                                              const std::shared_ptr<Device>& device,
                                                              const TensorParallelGroup& tp_group) const {
  const TransformerShape shape = shape_for(fields);
  if (model_.shape.vocabulary == 0 && !splits_words(shape, tp_group)) {
    throw UsageError(fmt::format("{}: expected a vocabulary that is a multiple of the {} workers, got {}",
                                 model_.name, tp_group.group.communicator.size(), shape.vocabulary));
  }
  return std::make_unique<Bert>(shape, model_.heads, generator, device, &tp_group);
}

Tensors MaskedLanguage::inputs(const BatchTensors& batch) const {
  return {batch["tokens"], batch["segments"], batch["positions"]};
}

Tensor MaskedLanguage::loss(const Tensors& outputs, const BatchTensors& batch) const {
  const Tensor words = cross_entropy(by_word(outputs[0]), wanted(batch));
  return model_.heads.next_sentence ? add(words, cross_entropy(outputs[1], batch["next"])) : words;
}

Tensor MaskedLanguage::loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                                            const TensorParallelGroup& tp_group) const {
  const Tensor logits = by_word(outputs[0]);
  const bool splits = model_.shape.vocabulary == 0 || splits_words(model_.shape, tp_group);
  const Tensor words = splits ? vocab_parallel_cross_entropy(logits, wanted(batch), tp_group.group, "loss")
                              : cross_entropy(logits, wanted(batch));
  return model_.heads.next_sentence ? add(words, cross_entropy(outputs[1], batch["next"])) : words;
}

void MaskedLanguage::add_up(const Tensors& outputs, const BatchTensors& batch, double /*units*/,
                            std::span<double> sums) const {
  const Tensor logits = by_word(outputs[0]), target = wanted(batch);
  sums[0] += cross_entropy(logits, target, LossReduction::sum).item();
  sums[1] += static_cast<double>(count_right(logits, target));
  sums[2] += static_cast<double>(target.numel());
  if (!model_.heads.next_sentence) return;
  sums[3] += cross_entropy(outputs[1], batch["next"], LossReduction::sum).item();
  sums[4] += static_cast<double>(count_right(outputs[1], batch["next"]));
}

Evaluation MaskedLanguage::evaluation(std::span<const double> sums, std::int64_t samples) const {
  Evaluation found{.loss = sums[0] / sums[2], .metrics = {{"accuracy", sums[1] / sums[2]}}};
  if (!model_.heads.next_sentence) return found;
  found.loss += sums[3] / static_cast<double>(samples);
  found.metrics.emplace_back("next_accuracy", sums[4] / static_cast<double>(samples));
  return found;
}

}  // namespace dtrain
