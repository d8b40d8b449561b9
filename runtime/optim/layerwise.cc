#include "runtime/optim/layerwise.h"

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/optim/option_checks.h"

namespace dtrain {
namespace {

/// A slot's array as a tensor, for as long as the slot lives.
Tensor borrowed(const View& view, const std::shared_ptr<Device>& device) {
  return Tensor::borrow(view, device, nullptr);
}

Tensor norm_of(const Tensor& x) { return sqrt(sum(square(x))); }

/// above / below where both are more than 0, else 1; without waiting for the device.
Tensor ratio_or_one(const Tensor& above, const Tensor& below) {
  const Tensor zero = Tensor::zeros_like(above), one = Tensor::ones_like(above);
  const Tensor both = greater(mul(above, below), zero);
  return where(both, div(above, where(both, below, one)), one);
}

/// w -= lr · direction, held back by the gate.
OptimizerSlot plain_slot(const OptimizerSlot& slot, const Tensor& direction) {
  return {slot.param, direction.view(), View{}, View{}};
}

}  // namespace

Lars::Lars(NamedTensors parameters, const LarsOptions& options)
    : Lars(std::vector<ParameterGroup<LarsOptions>>{{std::move(parameters), options}}) {}

Lars::Lars(const std::vector<ParameterGroup<LarsOptions>>& groups)
    : StatefulOptimizer(groups, {"momentum_buffer", ""}) {
  for (const auto& group : groups) {
    require_not_negative("LARS", "momentum", group.options.momentum);
    require_not_negative("LARS", "weight_decay", group.options.weight_decay);
    require_not_negative("LARS", "trust", group.options.trust);
    options_.push_back(group.options);
  }
}

void Lars::run(std::size_t group, std::int64_t /*step*/, const DeviceGroup& devices,
               std::span<const OptimizerSlot> slots) {
  const NoGrad no_grad;
  const LarsOptions& options = options_[group];
  const std::shared_ptr<Device>& device = devices.device;
  std::vector<OptimizerSlot> scaled;
  std::vector<Tensor> directions;  // kept until the kernel has them
  for (const OptimizerSlot& slot : slots) {
    const Tensor w = borrowed(slot.param, device), g = borrowed(slot.grad, device);
    Tensor direction = options.weight_decay > 0 ? add(g, mul(w, options.weight_decay)) : g;
    if (options.adapts) {
      const Tensor of_w = norm_of(w), of_g = norm_of(g);
      const Tensor below = add(of_g, mul(of_w, options.weight_decay));
      const Tensor has_rate = greater(mul(of_w, of_g), Tensor::zeros_like(of_w));
      const Tensor rate = mul(ratio_or_one(of_w, below), options.trust);
      direction = mul(direction, where(has_rate, rate, Tensor::ones_like(rate)));
    }
    directions.push_back(direction.contiguous());
    scaled.push_back({slot.param, directions.back().view(), slot.momentum, View{}});
  }
  devices.kernels().sgd(
      scaled,
      {.lr = lr(group), .momentum = options.momentum, .gate = devices.gate(), .changes = changes(group)});
}

Lamb::Lamb(NamedTensors parameters, const LambOptions& options)
    : Lamb(std::vector<ParameterGroup<LambOptions>>{{std::move(parameters), options}}) {}

Lamb::Lamb(const std::vector<ParameterGroup<LambOptions>>& groups)
    : StatefulOptimizer(groups, {"exp_avg", "exp_avg_sq"}) {
  for (const auto& group : groups) {
    const LambOptions& options = group.options;
    require_option(options.beta1 >= 0 && options.beta1 < 1, "LAMB", "beta1", "in [0, 1)", options.beta1);
    require_option(options.beta2 >= 0 && options.beta2 < 1, "LAMB", "beta2", "in [0, 1)", options.beta2);
    require_not_negative("LAMB", "eps", options.eps);
    require_not_negative("LAMB", "weight_decay", options.weight_decay);
    options_.push_back(options);
  }
}

// Adam's kernel moves zeros by its direction, at a rate of 1: what they become is the direction, negative.
void Lamb::run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
               std::span<const OptimizerSlot> slots) {
  const NoGrad no_grad;
  const LambOptions& options = options_[group];
  const std::shared_ptr<Device>& device = devices.device;
  std::vector<OptimizerSlot> moments, moved;
  std::vector<Tensor> directions;
  for (const OptimizerSlot& slot : slots) {
    directions.push_back(Tensor::zeros(slot.param.shape, device, slot.param.dtype));
    moments.push_back({directions.back().view(), slot.grad, slot.momentum, slot.variance});
  }
  devices.kernels().adamw(moments, {.lr = 1,
                                    .beta1 = options.beta1,
                                    .beta2 = options.beta2,
                                    .eps = options.eps,
                                    .weight_decay = 0,
                                    .step = step,
                                    .gate = devices.gate()});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Tensor w = borrowed(slots[i].param, device);
    Tensor& direction = directions[i];
    direction.mark_modified();
    direction = sub(mul(w, options.weight_decay), direction);
    if (options.adapts) direction = mul(direction, ratio_or_one(norm_of(w), norm_of(direction)));
    direction = direction.contiguous();
    moved.push_back(plain_slot(slots[i], direction));
  }
  devices.kernels().sgd(moved, {.lr = lr(group), .gate = devices.gate(), .changes = changes(group)});
}

}  // namespace dtrain
