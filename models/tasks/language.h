// Predicting the next token of a text.
#pragma once

#include <mutex>

#include "models/text/text_model.h"
#include "models/text/words.h"
#include "training/task.h"

namespace dtrain {

/// Samples need a first field `tokens` (i32 or i64 [N + 1], its number of values known): the network sees the
/// first N and is asked for the last N, or for those of them that `documents` and `asked` leave
/// (models/tasks/asked_tokens.h). Units are then the tokens that are asked for, else samples, all of which
/// have N.
class Language final : public Task {
 public:
  /// Vocabulary and context of `model`, where it has none, are those of the samples.
  explicit Language(TextModel model) : model_(std::move(model)) {}

  std::string name() const override { return model_.name; }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override;
  std::unique_ptr<Module> build_tensor_parallel(std::span<const Field> fields, Generator& generator,
                                                const std::shared_ptr<Device>& device,
                                                const TensorParallelGroup& tp_group) const override;
  Tensors inputs(const BatchTensors& batch) const override;
  /// The tokens: several documents share a sample in training only.
  std::vector<Field> fields_in_use(std::span<const Field> fields) const override { return {fields.front()}; }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override;
  double units(const Batch& batch) const override;
  bool units_vary(std::span<const Field> fields) const override;
  bool shows() const override { return true; }
  /// The beginning of a held-out sample, " → ", and the continuation by the network, drawn at temperature
  /// 0.8.
  std::string show(const ShowRequest& request) const override;
  std::optional<PublishedFormat> published_format(std::span<const Field> fields) const override;
  std::optional<TrainingCost> training_cost(std::span<const Field> fields) const override;
  OutputKind output_kind() const override { return OutputKind::logits; }
  Tensor loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                              const TensorParallelGroup& tp_group) const override;

  /// Sums: the loss of all tokens that are asked for, right guesses, how many those are.
  std::size_t sum_count() const override { return 3; }
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override;
  /// Metrics: "accuracy" and "perplexity", of tokens.
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override;

 private:
  TransformerShape shape_for(std::span<const Field> fields) const;

  /// `tokens` as text, or as numbers where there is no tokenizer for them.
  std::string text_of(std::span<const std::int32_t> tokens, std::int64_t vocabulary) const;

  TextModel model_;
  mutable std::once_flag opened_;
  mutable std::optional<Words> words_;  ///< opened when first needed; nothing: there are none
};

}  // namespace dtrain
