#include "parallel/layout/ties.h"

#include <algorithm>
#include <map>
#include <set>

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"

namespace dtrain {
namespace {

/// Whether `name` is the parameter or state that is named after it.
bool belongs_to(const std::string& name, const std::string& parameter) {
  return name == parameter || name.starts_with(parameter + ".");
}

}  // namespace

Ties::Ties(const Module& whole, const std::function<int(const std::string& name)>& stage_of, int stage)
    : stage_(stage) {
  std::map<const void*, std::vector<std::string>> names;
  for (const auto& [name, tensor] : whole.state_dict()) {
    if (tensor.numel() > 0) names[tensor.view().data].push_back(name);
  }
  for (const auto& [memory, same] : names) {
    std::set<int> holders;
    for (const std::string& name : same) holders.insert(stage_of(name));
    const auto own = std::ranges::find_if(same, [&](const auto& name) { return stage_of(name) == stage; });
    if (holders.size() == 1 || own == same.end()) continue;
    ties_.push_back({*own, same.front(), {holders.begin(), holders.end()}, stage_of(same.front())});
  }
  std::ranges::sort(ties_, {}, &Tie::first);  // the same order on all stages
}

bool Ties::is_copy(const std::string& name) const {
  return std::ranges::any_of(
      ties_, [&](const Tie& tie) { return tie.first_stage != stage_ && belongs_to(name, tie.own); });
}

std::optional<std::string> Ties::copy_of(const std::string& name) const {
  for (const Tie& tie : ties_) {
    if (tie.first_stage != stage_ && belongs_to(name, tie.first))
      return tie.own + name.substr(tie.first.size());
  }
  return std::nullopt;
}

void Ties::add_up_gradients(const NamedTensors& parameters, Communicator& stages,
                            const Deadline& deadline) const {
  const NoGrad no_grad;
  for (const Tie& tie : ties_) {
    const auto parameter = std::ranges::find(parameters, tie.own, &NamedTensor::first);
    // Of a range that is empty, or of frozen weights, on all stages.
    if (parameter == parameters.end()) continue;
    add_up(tie, parameter->second, stages, deadline);
  }
}

// The gradients, and a number that is not 0 where there is one.
void Ties::add_up(const Tie& tie, Tensor parameter, Communicator& stages, const Deadline& deadline) const {
  const bool is_used = parameter.grad().defined();
  const auto& device = parameter.shared_device();
  const Tensor own = is_used ? parameter.grad().detach().clone() : Tensor::zeros_like(parameter.detach());
  std::map<int, Tensor> all{{stage_, own}}, used{{stage_, Tensor::full({1}, is_used ? 1 : 0, device)}};
  std::vector<Message> sends, receives;
  for (const int other : tie.stages) {
    if (other == stage_) continue;
    all.emplace(other, Tensor::empty(own.shape(), device, own.dtype()));
    used.emplace(other, Tensor::empty({1}, device));
    for (auto* const tensors : {&all, &used}) {
      sends.push_back({span_of(tensors->at(stage_)), other});
      receives.push_back({span_of(tensors->at(other)), other});
    }
  }
  stages.exchange(sends, receives, "gradient of " + tie.first)->wait(deadline);
  for (const auto* const tensors : {&all, &used}) {
    for (const auto& [stage, tensor] : *tensors) tensor.mark_modified();
  }
  if (std::ranges::all_of(used, [](const auto& flag) { return flag.second.item() == 0; })) return;
  if (!is_used) parameter.set_grad(own.clone());
  Tensor gradient = parameter.grad().detach();
  gradient.fill(0);
  for (const auto& [stage, part] : all) gradient.add_in_place(part);
}

}  // namespace dtrain
