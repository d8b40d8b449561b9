// Parameters that share their options (torch.optim's param_groups), and the usual way to sort them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// Parameters and the options (SgdOptions, AdamWOptions, …) that move them. Each group is one kernel call a
/// step, so a network has a few of them, not one a layer.
template <class Options>
struct ParameterGroup {
  NamedTensors parameters;
  Options options;
};

/// The names of biases and of the weights of norms, which are commonly left out of weight decay: the
/// parameters of fewer than two dimensions. Taken of whole parameters; parts of them, as a sharded strategy
/// hands to an OptimizerFactory, may be flat and are then sorted by these names.
std::set<std::string> names_of_vectors(const NamedTensors& parameters);

/// The parameters whose name is in `names` and those whose name is not, each in the order given.
struct SplitParameters {
  NamedTensors named, others;
};
SplitParameters split_by_name(const NamedTensors& parameters, const std::set<std::string>& names);

/// `options` for all parameters, without weight decay for those named in `without_decay`; at most two groups,
/// none of them empty.
///
///     const NamedTensors all = network.named_parameters();
///     AdamW optimizer(decay_groups(all, names_of_vectors(all), AdamWOptions{.lr = 3e-4}));
template <class Options>
std::vector<ParameterGroup<Options>> decay_groups(const NamedTensors& parameters,
                                                  const std::set<std::string>& without_decay,
                                                  Options options) {
  SplitParameters split = split_by_name(parameters, without_decay);
  std::vector<ParameterGroup<Options>> groups;
  if (!split.others.empty()) groups.push_back({std::move(split.others), options});
  options.weight_decay = 0;
  if (!split.named.empty()) groups.push_back({std::move(split.named), options});
  return groups;
}

}  // namespace dtrain
