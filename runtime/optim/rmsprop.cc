#include "runtime/optim/rmsprop.h"

#include "runtime/optim/option_checks.h"
#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kSquare = "square_avg", kMomentum = "momentum_buffer", kMean = "grad_avg";

void check_options(const RmsPropOptions& options) {
  require_option(options.alpha >= 0 && options.alpha < 1, "RMSprop", "alpha", "in [0, 1)", options.alpha);
  require_not_negative("RMSprop", "eps", options.eps);
  require_not_negative("RMSprop", "weight_decay", options.weight_decay);
  require_not_negative("RMSprop", "momentum", options.momentum);
}

}  // namespace

RmsProp::RmsProp(NamedTensors parameters, const RmsPropOptions& options)
    : RmsProp(std::vector<ParameterGroup<RmsPropOptions>>{{std::move(parameters), options}}) {}

RmsProp::RmsProp(const std::vector<ParameterGroup<RmsPropOptions>>& groups)
    : Optimizer(groups), averages_(parameters().size()) {
  for (const auto& group : groups) {
    check_options(group.options);
    options_.push_back(group.options);
  }
}

void RmsProp::update() {
  for (std::size_t group = 0; group < options_.size(); ++group) update_group(group);
}

void RmsProp::update_group(std::size_t group) {
  const RmsPropOptions& options = options_[group];
  ForeachLists slots(*this);
  std::vector<Tensor> gradients;  // keeps a dense copy alive, where one is needed
  for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
    const Tensor& parameter = parameters()[i].second;
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient.detach().contiguous());
    Averages& averages = averages_[i];
    if (!averages.square.defined()) {
      averages.square = Tensor::zeros_like(parameter);
      if (options.momentum != 0) averages.momentum = Tensor::zeros_like(parameter);
      if (options.centered) averages.mean = Tensor::zeros_like(parameter);
    }
    slots.add(i, {parameter.view(), gradients.back().view(), view_or_none(averages.momentum),
                  averages.square.view(), view_or_none(averages.mean)});
    parameter.mark_modified();
  }
  slots.for_each_device_group([&](const DeviceGroup& devices, std::span<const OptimizerSlot> here) {
    devices.kernels().rmsprop(here, {lr(group), options.alpha, options.eps, options.weight_decay,
                                     options.momentum, options.centered, devices.gate(), changes(group)});
  });
}

Optimizer::NamedTensors RmsProp::named_state() const {
  NamedTensors state;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const std::string prefix = parameters()[i].first + ".";
    const auto add = [&](std::string_view quantity, const Tensor& tensor) {
      if (tensor.defined()) state.emplace_back(prefix + std::string(quantity), tensor);
    };
    add(kSquare, averages_[i].square);
    add(kMomentum, averages_[i].momentum);
    add(kMean, averages_[i].mean);
  }
  return state;
}

void RmsProp::load_state(const NamedTensors& state) {
  SavedState saved(state);
  std::vector<Averages> all(averages_.size());
  for (std::size_t group = 0; group < options_.size(); ++group) {
    const RmsPropOptions& options = options_[group];
    for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
      const auto& [name, parameter] = parameters()[i];
      Averages& averages = all[i];
      averages.square = saved.take(name, kSquare, parameter);
      if (options.momentum != 0) averages.momentum = saved.take(name, kMomentum, parameter);
      if (options.centered) averages.mean = saved.take(name, kMean, parameter);
      const bool any = averages.square.defined();
      if ((options.momentum != 0 && averages.momentum.defined() != any) ||
          (options.centered && averages.mean.defined() != any)) {
        throw_incomplete_state(name, "square_avg and what momentum and centered need");
      }
    }
  }
  saved.check_all_taken();
  averages_ = std::move(all);
}

}  // namespace dtrain
