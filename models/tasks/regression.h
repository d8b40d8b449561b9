// Predicting numbers: the mean squared error between a network's outputs and the targets.
#pragma once

#include "models/tasks/fed_field.h"
#include "training/task.h"

namespace dtrain {

/// Samples need a float field `y` [M] (or []) beside what the network is fed, the first field that is
/// neither `label` nor `y`: a vector `x` [N], or an image. The mean is over samples and outputs alike, as
/// torch.nn.MSELoss'.
class Regression final : public Task {
 public:
  /// `model` as make_network.
  explicit Regression(std::string_view model) : model_(model) {}

  std::string name() const override { return model_; }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override;
  std::size_t input_field(std::span<const std::string> names) const override {
    return first_fed_field(names, model_);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override;
  /// Metric: "rmse", the root of the loss.
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override;

 private:
  std::string model_;
};

}  // namespace dtrain
