#include "parallel/pipeline/ties.h"

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
    if (parameter == parameters.end()) continue;  // of a range that is empty, on all stages
    Tensor gradient = parameter->second.grad().detach();
    const Tensor own = gradient.clone();
    std::map<int, Tensor> all{{stage_, own}};
    std::vector<Message> sends, receives;
    for (const int other : tie.stages) {
      if (other == stage_) continue;
      const Tensor& theirs =
          all.emplace(other, Tensor::empty(own.shape(), own.shared_device(), own.dtype())).first->second;
      sends.push_back({span_of(own), other});
      receives.push_back({span_of(theirs), other});
    }
    stages.exchange(sends, receives, "gradient of " + tie.first)->wait(deadline);
    for (const auto& [stage, part] : all) part.mark_modified();
    gradient.fill(0);
    for (const auto& [stage, part] : all) gradient.add_in_place(part);
  }
}

}  // namespace dtrain
