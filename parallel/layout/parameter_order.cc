#include "parallel/layout/parameter_order.h"

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// The same for names of one parameter. Memory that comes and goes is nobody's address.
const void* identity(const Tensor& tensor) {
  const auto& storage = tensor.shared_storage();
  return storage->had_hook() ? static_cast<const void*>(storage.get()) : tensor.view().data;
}

}  // namespace

ParameterOrder::ParameterOrder(const Module& whole) {
  std::map<const void*, std::size_t> by_memory;
  for (const auto& [name, tensor] : whole.named_parameters()) {
    if (tensor.numel() > 0) by_memory.emplace(identity(tensor), count_);
    numbers_[name] = count_++;
  }
  for (const auto& [name, tensor] : whole.state_dict()) {
    if (tensor.numel() == 0) continue;
    const auto found = by_memory.find(identity(tensor));
    if (found != by_memory.end()) numbers_.emplace(name, found->second);
  }
}

std::size_t ParameterOrder::at(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  throw UsageError("pipeline: expected a parameter of the network, got '" + name + "'");
}

}  // namespace dtrain
