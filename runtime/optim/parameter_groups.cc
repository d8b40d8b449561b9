#include "runtime/optim/parameter_groups.h"

namespace dtrain {

std::set<std::string> names_of_vectors(const NamedTensors& parameters) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.rank() < 2) names.insert(name);
  }
  return names;
}

SplitParameters split_by_name(const NamedTensors& parameters, const std::set<std::string>& names) {
  SplitParameters split;
  for (const auto& parameter : parameters) {
    (names.contains(parameter.first) ? split.named : split.others).push_back(parameter);
  }
  return split;
}

}  // namespace dtrain
