#include "runtime/optim/rules/muon.h"

#include <algorithm>
#include <cmath>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/option_checks.h"

namespace dtrain {
namespace {

void check_options(const MuonOptions& options) {
  require_not_negative("Muon", "weight_decay", options.weight_decay);
  require_option(options.momentum >= 0 && options.momentum < 1, "Muon", "momentum", "in [0, 1)",
                 options.momentum);
  require_option(options.beta1 >= 0 && options.beta1 < 1, "Muon", "beta1", "in [0, 1)", options.beta1);
  require_option(options.beta2 >= 0 && options.beta2 < 1, "Muon", "beta2", "in [0, 1)", options.beta2);
  require_option(options.eps > 0, "Muon", "eps", "finite and above 0", options.eps);
  require_not_negative("Muon", "adam_eps", options.adam_eps);
  require_option(options.iterations >= 0 && options.iterations < 100, "Muon", "iterations", "from 0 to 99",
                 options.iterations);
  for (const double coefficient : options.coefficients)
    require_option(true, "Muon", "coefficients", "finite", coefficient);
}

void check_matrices(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.rank() >= 2) continue;
    throw UsageError("Muon: expected parameters of at least two dimensions, got \"" + name + "\", " +
                     tensor.describe() + "; put it into a group with adapts = false (layerwise_groups)");
  }
}

double ratio_of(MuonScale scale, double rows, double columns) {
  switch (scale) {
    case MuonScale::match_rms_adamw:
      return 0.2 * std::sqrt(std::max(rows, columns));
    case MuonScale::spectral_unclamped:
      return std::sqrt(rows / columns);
    default:
      return std::sqrt(std::max(1.0, rows / columns));
  }
}

/// Rows by the first dimension.
Tensor as_matrix(const Tensor& x) { return x.flatten(1); }

/// What a step moves a parameter by, for a rate of 1.
Tensor direction_of(const OptimizerSlot& slot, const MuonOptions& options,
                    const std::shared_ptr<Device>& device) {
  const Tensor gradient = Tensor::borrow(slot.grad, device, nullptr);
  const Tensor average = Tensor::borrow(slot.momentum, device, nullptr);
  const DType dtype = gradient.dtype(), exact = dtype == DType::f64 ? dtype : DType::f32;
  const Tensor g = as_matrix(gradient).to(exact), m = as_matrix(average).to(exact);
  const Tensor moved = options.nesterov ? add(g, mul(sub(m, g), options.momentum)) : m;
  const Tensor o = orthogonalized(moved, options.coefficients, options.iterations, options.eps);
  const double ratio =
      ratio_of(options.scale, static_cast<double>(moved.size(0)), static_cast<double>(moved.size(1)));
  return mul(o, ratio).to(dtype).contiguous();
}

}  // namespace

Tensor orthogonalized(const Tensor& x, const std::array<double, 3>& coefficients, int iterations,
                      double eps) {
  const auto [a, b, c] = coefficients;
  const bool is_tall = x.size(0) > x.size(1);  // the smaller of the two products of x with itself
  Tensor y = is_tall ? x.transpose(0, 1) : x;
  y = div(y, clamp(sqrt(sum(square(y))), eps));
  for (int i = 0; i < iterations; ++i) {
    const Tensor gram = matmul(y, y.transpose(0, 1));
    y = add(mul(y, a), matmul(add(mul(gram, b), mul(matmul(gram, gram), c)), y));
  }
  return is_tall ? y.transpose(0, 1) : y;
}

std::vector<ParameterGroup<MuonOptions>> muon_groups(const NamedTensors& parameters,
                                                     const std::set<std::string>& outer,
                                                     const std::set<std::string>& vectors,
                                                     const MuonOptions& options) {
  std::set<std::string> by_adamw = outer;
  by_adamw.insert(vectors.begin(), vectors.end());
  SplitParameters split = split_by_name(parameters, by_adamw);
  std::vector<ParameterGroup<MuonOptions>> groups;
  if (!split.others.empty()) groups.push_back({std::move(split.others), options});
  MuonOptions adamw = options;
  adamw.adapts = false;
  for (auto& group : decay_groups(split.named, vectors, adamw)) groups.push_back(std::move(group));
  return groups;
}

Muon::Muon(NamedTensors parameters, const MuonOptions& options)
    : Muon(std::vector<ParameterGroup<MuonOptions>>{{std::move(parameters), options}}) {}

Muon::Muon(const std::vector<ParameterGroup<MuonOptions>>& groups)
    : StatefulOptimizer(groups, {"exp_avg", "exp_avg_sq"}) {
  for (const auto& group : groups) {
    check_options(group.options);
    if (group.options.adapts) check_matrices(group.parameters);
    options_.push_back(group.options);
  }
}

bool Muon::keeps(std::size_t group, std::size_t quantity) const {
  return quantity == 0 || !options_[group].adapts;
}

void Muon::run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
               std::span<const OptimizerSlot> slots) {
  const NoGrad no_grad;
  const MuonOptions& options = options_[group];
  if (!options.adapts) {
    return devices.kernels().adamw(slots, {.lr = lr(group),
                                           .beta1 = options.beta1,
                                           .beta2 = options.beta2,
                                           .eps = options.adam_eps,
                                           .weight_decay = options.weight_decay,
                                           .step = step,
                                           .gate = devices.gate(),
                                           .changes = changes(group)});
  }
  std::vector<OptimizerSlot> averages, moved;
  for (const OptimizerSlot& slot : slots) averages.push_back({slot.momentum, slot.grad, View{}, View{}});
  devices.kernels().lerp(averages, {.weight = 1 - options.momentum, .gate = devices.gate()});
  std::vector<Tensor> directions;  // kept until the kernel has them
  for (const OptimizerSlot& slot : slots) {
    directions.push_back(direction_of(slot, options, devices.device));
    View direction = directions.back().view();
    direction.shape = slot.param.shape;
    direction.strides = slot.param.strides;
    moved.push_back({slot.param, direction, View{}, View{}});
  }
  devices.kernels().sgd(moved, {.lr = lr(group),
                                .weight_decay = options.weight_decay,
                                .gate = devices.gate(),
                                .changes = changes(group)});
}

}  // namespace dtrain
