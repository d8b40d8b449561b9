#include "parallel/pipeline/parameter_order.h"

#include "runtime/base/error.h"

namespace dtrain {

ParameterOrder::ParameterOrder(const Module& whole) {
  std::map<const void*, std::size_t> by_memory;
  for (const auto& [name, tensor] : whole.named_parameters()) {
    if (tensor.numel() > 0) by_memory.emplace(tensor.view().data, count_);
    numbers_[name] = count_++;
  }
  for (const auto& [name, tensor] : whole.state_dict()) {
    if (tensor.numel() == 0) continue;
    const auto found = by_memory.find(tensor.view().data);
    if (found != by_memory.end()) numbers_.emplace(name, found->second);
  }
}

std::size_t ParameterOrder::at(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  throw UsageError("pipeline: expected a parameter of the network, got '" + name + "'");
}

}  // namespace dtrain
