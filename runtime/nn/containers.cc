#include "runtime/nn/containers.h"

#include "runtime/base/error.h"

namespace dtrain {

Sequential::Sequential(const std::vector<std::shared_ptr<Module>>& modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) add_module(std::to_string(i), modules[i]);
}

Sequential::Sequential(const NamedModules& modules) {
  for (const auto& [name, module] : modules) add_module(name, module);
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor result = x;
  for (const auto& [name, module] : children()) result = (*module)(result);
  return result;
}

Tensors Sequential::forward_all(const Tensors& inputs) {
  Tensors results = inputs;
  for (const auto& [name, module] : children()) results = (*module)(results);
  return results;
}

ModuleList::ModuleList(const std::vector<std::shared_ptr<Module>>& modules) {
  for (const auto& module : modules) append(module);
}

void ModuleList::append(const std::shared_ptr<Module>& module) { add_module(std::to_string(size()), module); }

Module& ModuleList::operator[](std::size_t index) const {
  if (index < size()) return *children()[index].second;
  throw UsageError("module list: expected an index below " + std::to_string(size()) + ", got " +
                   std::to_string(index));
}

Tensor ModuleList::forward(const Tensor& /*x*/) {
  throw UsageError("module list: a list has no forward; call its modules, or use Sequential");
}

}  // namespace dtrain
