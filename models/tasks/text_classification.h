// Classes of texts, by a BERT.
#pragma once

#include "models/tasks/classification.h"
#include "models/text/text_model.h"

namespace dtrain {

/// Samples have `tokens` (integers [L], framed as the model wants them and filled up with its padding token)
/// and `label` (i64 [], with a known number of classes); `segments` (integers [L]) if they have two of them.
/// Padding is not seen, and on CPUs not computed beyond the batch's longest text.
class TextClassification final : public Task {
 public:
  /// Whatever heads `model` has, the network has one for the samples' classes. Throws UsageError for another
  /// model than a BERT.
  explicit TextClassification(TextModel model);

  std::string name() const override { return model_.name; }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override;
  std::unique_ptr<Module> build_tensor_parallel(std::span<const Field> fields, Generator& generator,
                                                const std::shared_ptr<Device>& device,
                                                const TensorParallelGroup& tp_group) const override;
  std::size_t input_field(std::span<const std::string> names) const override;
  Tensors inputs(const BatchTensors& batch) const override;
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return classes_.loss(outputs, batch);
  }
  /// The logits are whole on all ranks.
  Tensor loss_tensor_parallel(const Tensors& outputs, const BatchTensors& batch,
                              const TensorParallelGroup& /*tp_group*/) const override {
    return classes_.loss(outputs, batch);
  }
  std::optional<PublishedFormat> published_format(std::span<const Field> fields) const override;
  OutputKind output_kind() const override { return OutputKind::logits; }
  const Field* predicted_field(std::span<const Field> fields) const override {
    return classes_.predicted_field(fields);
  }
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override {
    classes_.add_up(outputs, batch, units, sums);
  }
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override {
    return classes_.evaluation(sums, samples);
  }

 private:
  TextModel model_for(std::span<const Field> fields) const;

  TextModel model_;
  Classification classes_;  ///< of what the network says about them
};

}  // namespace dtrain
