#include "runtime/nn/norms.h"

#include "runtime/autograd/ops/norms.h"

namespace dtrain {

LayerNorm::LayerNorm(const Dims& shape, const std::shared_ptr<Device>& device, double eps, bool bias)
    : shape_(shape), eps_(eps) {
  weight_ = add_parameter("weight", Tensor::ones(shape, device));
  if (bias) bias_ = add_parameter("bias", Tensor::zeros(shape, device));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight_, bias_, eps_); }

RMSNorm::RMSNorm(const Dims& shape, const std::shared_ptr<Device>& device, double eps)
    : shape_(shape), eps_(eps) {
  weight_ = add_parameter("weight", Tensor::ones(shape, device));
}

Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, shape_, weight_, eps_); }

}  // namespace dtrain
