// Normalisation over the last dimensions.
#pragma once

#include "runtime/nn/module.h"

namespace dtrain {

/// See layer_norm. Parameters: weight (1) and bias (0), float32 of `shape`.
class LayerNorm : public Module {
 public:
  LayerNorm(const Dims& shape, const std::shared_ptr<Device>& device, double eps = 1e-5, bool bias = true);
  Tensor forward(const Tensor& x) override;

 private:
  Dims shape_;
  Tensor weight_, bias_;
  double eps_;
};

/// See rms_norm. Parameter: weight (1), float32 of `shape`. The default of eps is torch's for float32.
class RMSNorm : public Module {
 public:
  RMSNorm(const Dims& shape, const std::shared_ptr<Device>& device, double eps = 1.1920928955078125e-07);
  Tensor forward(const Tensor& x) override;

 private:
  Dims shape_;
  Tensor weight_;
  double eps_;
};

}  // namespace dtrain
