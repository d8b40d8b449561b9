#include "runtime/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"
#include "runtime/device/kernel_checks.h"
#include "runtime/optim/device_groups.h"

namespace dtrain {
namespace {

void check_limit(std::string_view name, double limit) {
  if (limit >= 0) return;
  throw UsageError(std::string(name) + ": expected a limit of at least 0, got " + std::to_string(limit));
}

/// What the kernels do to each gradient, in place.
template <class Apply>
void for_each_defined(std::span<const Tensor> gradients, Apply apply) {
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    apply(gradient.detach());
    gradient.mark_modified();
  }
}

Tensor number(double value, const Tensor& like, const Dims& shape) {
  return Tensor::full({}, value, like.shared_device(), like.dtype()).expand(shape);
}

Tensor norm_of(const Tensor& gradient, NormKind kind) {
  const Tensor flat = gradient.contiguous().reshape({gradient.numel()});
  if (kind == NormKind::euclidean) return sqrt(sum(square(flat)));
  return flat.numel() == 0 ? Tensor::zeros({}, flat.shared_device(), flat.dtype()) : amax(abs(flat), {0});
}

}  // namespace

// As PyTorch: the norm of the tensors' norms, in the order of the gradients. Those of another GPU come in one
// piece.
Tensor total_norm(std::span<const Tensor> gradients, NormKind kind) {
  const NoGrad no_grad;
  DeviceGroups groups;
  std::vector<Tensors> norms;  // by group
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const std::size_t group = groups.find(gradient.shared_device());
    norms.resize(groups.devices().size());
    places.emplace_back(group, norms[group].size());
    norms[group].push_back(gradient_norm(gradient, kind).to(groups.devices()[group]));
  }
  if (places.empty()) {
    throw UsageError("total_norm: expected at least one gradient, got none; run backward first");
  }
  if (norms.size() == 1) return norm_of_norms(stack(norms.front()), kind);
  Tensors brought, in_order;
  for (const Tensors& there : norms) brought.push_back(stack(there).to(groups.devices().front()));
  for (const auto& [group, place] : places)
    in_order.push_back(brought[group].select(0, static_cast<std::int64_t>(place)));
  return norm_of_norms(stack(in_order), kind);
}

Tensor gradient_norm(const Tensor& gradient, NormKind kind) {
  const NoGrad no_grad;
  const Tensor exact = gradient.detach();
  return norm_of(is_half(exact.dtype()) ? exact.to(DType::f32) : exact, kind);
}

Tensor norm_of_norms(const Tensor& norms, NormKind kind) {
  const NoGrad no_grad;
  return norm_of(norms, kind);
}

void scale_to_norm(std::span<const Tensor> gradients, const Tensor& norm, double max_norm) {
  check_limit("clip_grad_norm", max_norm);
  const NoGrad no_grad;
  const Tensor share = div(number(max_norm, norm, {}), add(norm, 1e-6));
  const Tensor factor = minimum(share, number(1.0, norm, {}));
  DeviceGroups groups;
  Tensors factors;  // by group
  for_each_defined(gradients, [&](const Tensor& gradient) {
    const std::size_t group = groups.find(gradient.shared_device());
    if (group == factors.size()) factors.push_back(factor.to(gradient.shared_device()));
    const Tensor scale = factors[group].to(gradient.dtype()).expand(gradient.shape());
    gradient.device().kernels().binary(BinaryOp::mul, gradient.view(), scale.view(), gradient.view());
  });
}

Tensor clip_grad_norm(std::span<const Tensor> gradients, double max_norm, NormKind kind) {
  check_limit("clip_grad_norm", max_norm);
  Tensor norm = total_norm(gradients, kind);
  scale_to_norm(gradients, norm, max_norm);
  return norm;
}

void clip_grad_value(std::span<const Tensor> gradients, double limit) {
  check_limit("clip_grad_value", limit);
  for_each_defined(gradients, [&](const Tensor& gradient) {
    Kernels& kernels = gradient.device().kernels();
    const Tensor low = number(-limit, gradient, gradient.shape());
    const Tensor high = number(limit, gradient, gradient.shape());
    kernels.binary(BinaryOp::max, gradient.view(), low.view(), gradient.view());
    kernels.binary(BinaryOp::min, gradient.view(), high.view(), gradient.view());
  });
}

void limit_gradients(std::span<const Tensor> gradients, const GradientLimits& limits) {
  if (limits.value) clip_grad_value(gradients, *limits.value);
  const bool has_any = std::ranges::any_of(gradients, &Tensor::defined);
  if (limits.norm && has_any) clip_grad_norm(gradients, *limits.norm);
}

}  // namespace dtrain
