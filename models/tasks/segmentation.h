// Semantic segmentation: cross entropy over the logits of each pixel, and the mean intersection over union.
#pragma once

#include "models/tasks/fed_field.h"
#include "training/task.h"

namespace dtrain {

/// Samples need a field `mask` (i64 [H, W], with a known number of classes; -1: no class) beside what the
/// network is fed, the first field that is none of `mask`, `label` and `y`: `image` [C, H, W] of the same
/// height and width. The mean is over the pixels that have a class, as torch.nn.CrossEntropyLoss' with
/// ignore_index, over all workers.
class Segmentation final : public Task {
 public:
  /// `model`: a network that labels pixels (labels_pixels()).
  explicit Segmentation(std::string_view model) : model_(model) {}

  std::string name() const override { return model_; }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override;
  std::size_t input_field(std::span<const std::string> names) const override {
    return first_fed_field(names, model_);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override;
  const Field* predicted_field(std::span<const Field> fields) const override {
    return find_field(fields, kMaskField);
  }
  /// Pixels that have a class.
  double units(const Batch& batch) const override;
  bool units_vary(std::span<const Field> /*fields*/) const override { return true; }
  /// No ranking of pixels.
  std::size_t kept_count(std::span<const Field> /*fields*/) const override { return 0; }
  /// Metrics: "mean_iou", over the classes that occur as label or prediction, and "pixel_accuracy".
  void add_confusion(const Confusion& confusion, Evaluation& found) const override;

 private:
  std::string model_;
};

/// Of each class the pixels that are of it and were predicted so, over those that are one or the other; NaN
/// for classes that are neither.
std::vector<double> intersections_over_unions(const Confusion& confusion);

}  // namespace dtrain
