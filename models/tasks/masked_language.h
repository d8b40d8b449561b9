// Telling the masked words of a text, and whether its second half follows the first: how a BERT is trained.
#pragma once

#include "models/text/text_model.h"
#include "training/task.h"

namespace dtrain {

/// A BERT on windows of tokens (`tokens`, as TextSource has them), which open() makes the samples of
/// MaskedWordSource of; in pairs where the model has a head for the next sentence. Units are samples, all of
/// which have as many masked words.
class MaskedLanguage final : public Task {
 public:
  /// Vocabulary and context of `model`, where it has none, are those of the samples.
  explicit MaskedLanguage(TextModel model);

  std::string name() const override { return model_.name; }
  Splits open(const DataRequest& request) const override;
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override;
  std::unique_ptr<Module> build_tensor_parallel(std::span<const Field> fields, Generator& generator,
                                                const std::shared_ptr<Device>& device,
                                                const TensorParallelGroup& tp_group) const override;
  Tensors inputs(const BatchTensors& batch) const override;
  /// The mean cross entropy of the masked words, and of the next sentence in addition.
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override;
  Tensor loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                              const TensorParallelGroup& tp_group) const override;
  std::optional<PublishedFormat> published_format(std::span<const Field> fields) const override;
  OutputKind output_kind() const override { return OutputKind::logits; }
  std::size_t sum_count() const override { return 5; }
  /// Sums: the words' loss, words told, words; the next sentences' loss, those told.
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override;
  /// Metrics: "accuracy" of words, and "next_accuracy".
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override;

 private:
  TransformerShape shape_for(std::span<const Field> fields) const;

  TextModel model_;
};

}  // namespace dtrain
