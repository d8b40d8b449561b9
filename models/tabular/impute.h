// What a network for tables begins with where values may be missing.
#pragma once

#include <span>

#include "runtime/nn/module.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

/// Another number for each NaN, column by column, as sklearn.impute.SimpleImputer does. Buffer: fill, float32
/// [F], which is not learned: it is part of checkpoints and of exported files, so that the network takes rows
/// that lack values wherever it is used.
class Impute : public Module {
 public:
  /// One number for each of F columns. Throws UsageError for none, and for one that is not finite.
  explicit Impute(std::span<const float> fill, const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;  ///< [N, F] → [N, F]
  std::string extra_repr() const override;

 private:
  Tensor fill_;
};

}  // namespace dtrain
