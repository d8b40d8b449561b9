// The first and the last layer of a network for tables whose columns are of different units.
#pragma once

#include <span>

#include "runtime/nn/module.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

/// (x - mean) / deviation, column by column, as sklearn.preprocessing.StandardScaler does. Buffers: mean and
/// deviation, float32 [F], which are not learned: they are part of checkpoints and of exported files, so that
/// the network takes columns as they are wherever it is used.
class Standardize : public Module {
 public:
  /// One number for each of F columns. Throws UsageError for other counts and for a deviation that is not
  /// above 0.
  Standardize(std::span<const float> mean, std::span<const float> deviation,
              const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;  ///< [N, F] → [N, F]
  std::string extra_repr() const override;

 private:
  Tensor mean_, deviation_;
};

/// The way back, for what a network predicts: x · deviation + mean. Gradients are divided by the deviation
/// and not multiplied by it: those of a squared error that is measured in deviations, so that one learning
/// rate suits prices and shares. Buffers as Standardize's.
class Unstandardize : public Module {
 public:
  /// As Standardize's.
  Unstandardize(std::span<const float> mean, std::span<const float> deviation,
                const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;  ///< [N, M] → [N, M]
  std::string extra_repr() const override;

 private:
  Tensor mean_, deviation_;
};

}  // namespace dtrain
