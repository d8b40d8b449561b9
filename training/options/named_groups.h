// Groups of parameters by their names: what some have of their own in the place of the optimizer's options.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/optim/parameter_groups.h"

namespace dtrain {

/// Parameters by a pattern of their names (matches() in runtime/nn/trainable.h), and what moves them in the
/// place of the optimizer's own options: a group of torch.optim's param_groups.
struct NamedGroup {
  std::string names;              ///< "head.*"
  std::optional<double> lr = {};  ///< where a schedule starts from
  std::optional<double> weight_decay = {};
};

/// What a parameter has of its own, in the place of its group's.
struct OwnOptions {
  std::optional<double> lr, weight_decay;
  bool operator<(const OwnOptions& other) const {
    return std::tie(lr, weight_decay) < std::tie(other.lr, other.weight_decay);
  }
};
using OwnOptionsByName = std::map<std::string, OwnOptions>;

/// `groups`, each split by what its parameters have in `own`; names that are not there stay as they are.
/// Groups come in the order of their first parameters.
template <class Options>
std::vector<ParameterGroup<Options>> split_groups(const std::vector<ParameterGroup<Options>>& groups,
                                                  const OwnOptionsByName& own) {
  std::vector<ParameterGroup<Options>> split;
  for (const auto& group : groups) {
    std::map<OwnOptions, std::size_t> places;
    for (const NamedTensor& parameter : group.parameters) {
      const auto found = own.find(parameter.first);
      const OwnOptions options = found == own.end() ? OwnOptions{} : found->second;
      const auto [place, is_new] = places.emplace(options, split.size());
      if (is_new) {
        split.push_back({{}, group.options});
        if (options.lr) split.back().options.lr = *options.lr;
        if (options.weight_decay) split.back().options.weight_decay = *options.weight_decay;
      }
      split[place->second].parameters.push_back(parameter);
    }
  }
  return split;
}

}  // namespace dtrain
