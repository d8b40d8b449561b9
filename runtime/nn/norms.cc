#include "runtime/nn/norms.h"

#include <span>

#include "runtime/autograd/ops/norms.h"
#include "runtime/base/error.h"
#include "runtime/nn/print.h"

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

std::string LayerNorm::extra_repr() const {
  return repr::tuple(std::span(shape_.begin(), shape_.end())) + ", eps=" + repr::number(eps_) +
         ", elementwise_affine=True, bias=" + repr::flag(bias_.defined());
}

std::string RMSNorm::extra_repr() const {
  return repr::tuple(std::span(shape_.begin(), shape_.end())) + ", eps=" + repr::number(eps_) +
         ", elementwise_affine=True";
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, const std::shared_ptr<Device>& device,
                     double eps, bool affine)
    : groups_(groups), channels_(channels), eps_(eps) {
  if (groups < 1 || channels < 1 || channels % groups != 0) {
    throw UsageError("GroupNorm: expected groups that divide the channels, got " + std::to_string(groups) +
                     " and " + std::to_string(channels));
  }
  if (!affine) return;
  weight_ = add_parameter("weight", Tensor::ones({channels}, device));
  bias_ = add_parameter("bias", Tensor::zeros({channels}, device));
}

Tensor GroupNorm::forward(const Tensor& x) {
  if (x.rank() < 2 || x.size(1) != channels_)
    throw UsageError("GroupNorm: expected x [N, " + std::to_string(channels_) + ", …], got " + x.describe());
  return group_norm(x, groups_, weight_, bias_, eps_);
}

std::string GroupNorm::extra_repr() const {
  const std::string affine = repr::flag(weight_.defined());
  return std::to_string(groups_) + ", " + std::to_string(channels_) + ", eps=" + repr::number(eps_) +
         ", affine=" + affine + ", bias=" + affine;
}

InstanceNorm::InstanceNorm(int rank, std::int64_t channels, const std::shared_ptr<Device>& device, double eps,
                           bool affine)
    : rank_(rank), channels_(channels), eps_(eps) {
  if (channels < 1)
    throw UsageError("InstanceNorm: expected at least one channel, got " + std::to_string(channels));
  if (!affine) return;
  weight_ = add_parameter("weight", Tensor::ones({channels}, device));
  bias_ = add_parameter("bias", Tensor::zeros({channels}, device));
}

Tensor InstanceNorm::forward(const Tensor& x) {
  if (x.rank() != rank_ || x.size(1) != channels_) {
    throw UsageError("InstanceNorm: expected " + std::to_string(rank_) + " dimensions, the second of " +
                     std::to_string(channels_) + " channels, got " + x.describe());
  }
  return instance_norm(x, weight_, bias_, eps_);
}

std::string InstanceNorm::extra_repr() const {
  const std::string affine = repr::flag(weight_.defined());
  return std::to_string(channels_) + ", eps=" + repr::number(eps_) + ", momentum=0.1, affine=" + affine +
         ", bias=" + affine + ", track_running_stats=False";
}

}  // namespace dtrain
