#include "parallel/layout/stage_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"

namespace dtrain {
namespace {

// The gradients, and a number that is not 0 where there is one.
void add_up(const Tie& tie, Tensor parameter, Communicator& stages, const Deadline& deadline) {
  const bool is_used = parameter.grad().defined();
  const auto& device = parameter.shared_device();
  const int stage = stages.rank();
  const Tensor own = is_used ? parameter.grad().detach().clone() : Tensor::zeros_like(parameter.detach());
  std::map<int, Tensor> all{{stage, own}}, used{{stage, Tensor::full({1}, is_used ? 1 : 0, device)}};
  std::vector<Message> sends, receives;
  for (const int other : tie.stages) {
    if (other == stage) continue;
    all.emplace(other, Tensor::empty(own.shape(), device, own.dtype()));
    used.emplace(other, Tensor::empty({1}, device));
    for (auto* const tensors : {&all, &used}) {
      sends.push_back({span_of(tensors->at(stage)), other});
      receives.push_back({span_of(tensors->at(other)), other});
    }
  }
  stages.exchange(sends, receives, "gradient of " + tie.first)->wait(deadline);
  for (const auto* const tensors : {&all, &used}) {
    for (const auto& [holder, tensor] : *tensors) tensor.mark_modified();
  }
  if (std::ranges::all_of(used, [](const auto& flag) { return flag.second.item() == 0; })) return;
  if (!is_used) parameter.set_grad(own.clone());
  Tensor gradient = parameter.grad().detach();
  gradient.fill(0);
  for (const auto& [holder, part] : all) gradient.add_in_place(part);
}

}  // namespace

std::vector<ParameterLayout> parameters_of_stage(const Module& whole,
                                                 const std::function<int(const std::string& name)>& stage_of,
                                                 int stage) {
  std::vector<ParameterLayout> here;
  std::map<const void*, std::vector<std::string>> names;
  for (ParameterLayout& parameter : layouts_of(whole)) {
    if (parameter.whole.numel() > 0) names[parameter.whole.view().data].push_back(parameter.name);
    if (stage_of(parameter.name) == stage) here.push_back(std::move(parameter));
  }
  for (ParameterLayout& parameter : here) {
    if (parameter.whole.numel() == 0) continue;
    const auto& same = names.at(parameter.whole.view().data);
    std::set<int> holders;
    for (const std::string& name : same) holders.insert(stage_of(name));
    const auto own = std::ranges::find_if(same, [&](const auto& name) { return stage_of(name) == stage; });
    if (holders.size() == 1 || parameter.name != *own) continue;
    parameter.tie = {same.front(), {holders.begin(), holders.end()}, stage_of(same.front()) != stage};
  }
  return here;
}

void add_up_tied_gradients(const std::vector<ParameterLayout>& layouts, Communicator& stages,
                           const NamedTensors& parameters, const Deadline& deadline) {
  const NoGrad no_grad;
  std::map<std::string, const ParameterLayout*> tied;  // by the first name: the same order on all stages
  for (const ParameterLayout& parameter : layouts) {
    if (parameter.tie) tied.emplace(parameter.tie->first, &parameter);
  }
  for (const auto& [first, parameter] : tied) {
    const auto here = std::ranges::find(parameters, parameter->name, &NamedTensor::first);
    // Of a range that is empty, or of frozen weights, on all stages.
    if (here != parameters.end()) add_up(*parameter->tie, here->second, stages, deadline);
  }
}

}  // namespace dtrain
