#include "runtime/optim/sgd.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/optim/option_checks.h"
#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kBuffer = "momentum_buffer";

void check_options(const SgdOptions& options) {
  require_not_negative("SGD", "momentum", options.momentum);
  require_not_negative("SGD", "weight_decay", options.weight_decay);
  require_option(true, "SGD", "dampening", "finite", options.dampening);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw UsageError("SGD: nesterov needs momentum above 0 and dampening 0, got momentum " +
                     std::to_string(options.momentum) + " and dampening " +
                     std::to_string(options.dampening));
  }
}

}  // namespace

Sgd::Sgd(NamedTensors parameters, const SgdOptions& options)
    : Sgd(std::vector<ParameterGroup<SgdOptions>>{{std::move(parameters), options}}) {}

Sgd::Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups)
    : Optimizer(groups), buffers_(parameters().size()) {
  for (const auto& group : groups) {
    check_options(group.options);
    options_.push_back(group.options);
  }
}

void Sgd::update() {
  for (std::size_t group = 0; group < options_.size(); ++group) {
    apply(group, false);
    // Parameters that get their first gradient later than others start their buffers then.
    if (options_[group].momentum != 0) apply(group, true);
  }
  count_step();
}

void Sgd::count_step() {
  if (attempts_ >= 0) ++attempts_;
}

void Sgd::apply(std::size_t group, bool first) {
  const SgdOptions& options = options_[group];
  ForeachLists slots(*this);
  std::vector<Tensor> gradients;  // keeps a dense copy alive, where one is needed
  for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
    const Tensor& parameter = parameters()[i].second;
    const Tensor gradient = parameter.grad();
    const bool is_first = options.momentum != 0 && !buffers_[i].defined();
    if (!gradient.defined() || is_first != first) continue;
    gradients.push_back(gradient.detach().contiguous());
    if (is_first) {
      buffers_[i] = Tensor::empty(parameter.shape(), parameter.shared_device(), parameter.dtype());
    }
    slots.add(i, {parameter.view(), gradients.back().view(),
                  buffers_[i].defined() ? buffers_[i].view() : View{}, View{}});
    parameter.mark_modified();
  }
  slots.for_each_device_group([&](const DeviceGroup& devices, std::span<const OptimizerSlot> here) {
    devices.kernels().sgd(here, {lr(group), options.momentum, options.dampening, options.weight_decay,
                                 options.nesterov, first, attempts_, devices.gate(), changes(group)});
  });
}

Optimizer::NamedTensors Sgd::named_state() const {
  NamedTensors state;
  if (attempts_ > 0 && skipped_steps() == attempts_) return state;  // nothing was ever written to them
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].defined()) {
      state.emplace_back(parameters()[i].first + "." + std::string(kBuffer), buffers_[i]);
    }
  }
  return state;
}

void Sgd::load_state(const NamedTensors& state) {
  SavedState saved(state);
  std::vector<Tensor> buffers(parameters().size());
  for (std::size_t group = 0; group < options_.size(); ++group) {
    if (options_[group].momentum == 0) continue;
    for (std::size_t i = groups()[group].begin; i < groups()[group].end; ++i) {
      buffers[i] = saved.take(parameters()[i].first, kBuffer, parameters()[i].second);
    }
  }
  saved.check_all_taken();
  buffers_ = std::move(buffers);
  const bool any = std::any_of(buffers_.begin(), buffers_.end(), [](const Tensor& b) { return b.defined(); });
  attempts_ = any ? -1 : 0;
}

}  // namespace dtrain
