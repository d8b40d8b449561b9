#include "runtime/nn/containers.h"

#include <set>

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

std::vector<LayerUnit> Sequential::chain() const {
  std::vector<LayerUnit> parts;
  std::set<const Module*> known;
  for (const auto& [name, module] : children()) {
    if (!known.insert(module.get()).second && module->parameter_count() > 0) {
      throw UsageError(
          "Sequential: expected each module with parameters once in a network that is cut into parts, got "
          "module " +
          name + " a second time");
    }
    parts.push_back({{{name, module}}, [module = module](const Tensor& x, const Tensors& beside) {
                       if (!beside.empty()) {
                         throw UsageError(
                             "Sequential: expected one input where the network is cut into parts, got " +
                             std::to_string(1 + beside.size()));
                       }
                       return (*module)(x);
                     }});
  }
  return parts;
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
