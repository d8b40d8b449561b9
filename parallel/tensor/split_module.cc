#include "parallel/tensor/split_module.h"

#include <fmt/format.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void collect(const Module& module, const std::string& prefix, std::map<std::string, SplitDim>& found) {
  if (const auto* const split = dynamic_cast<const SplitModule*>(&module)) {
    for (const auto& [name, dim] : split->split_parameters()) found.emplace(prefix + name, dim);
  }
  for (const auto& [name, child] : module.children()) collect(*child, prefix + name + ".", found);
}

void collect_slices(const Module& module, const std::string& prefix,
                    std::map<std::string, TensorShard>& found) {
  if (const auto* const split = dynamic_cast<const SplitModule*>(&module)) {
    for (const auto& [name, shard] : split->own_slices()) found.emplace(prefix + name, shard);
  }
  for (const auto& [name, child] : module.children()) collect_slices(*child, prefix + name + ".", found);
}

Tensor slice_of(const Tensor& whole, int dim, int rank, int ranks) {
  const std::int64_t part = whole.size(dim) / ranks;
  return whole.slice(dim, part * rank, part * (rank + 1));
}

}  // namespace

Tensor SplitModule::add_slice(std::string_view layer, std::string_view name, const Tensor& whole, int dim) {
  if (whole.size(dim) % ranks() != 0) {
    throw UsageError(
        fmt::format("{}: expected dimension {} of {} {} to be a multiple of the {} ranks that share it",
                    layer, dim, name, whole.describe(), ranks()));
  }
  split_.emplace(name, SplitDim{dim});
  return add_parameter(name, slice_of(whole, dim, rank(), ranks()).clone());
}

Tensor SplitModule::add_tied_slice(std::string_view name, const Tensor& slice, int dim) {
  split_.emplace(name, SplitDim{dim});
  return add_parameter(name, slice);
}

std::map<std::string, TensorShard> SplitModule::own_slices() const {
  std::map<std::string, TensorShard> slices;
  for (const auto& [name, tensor] : own_parameters()) {
    const auto cut = split_.find(name);
    if (cut == split_.end()) continue;
    const int dim = cut->second.dim;
    const std::int64_t part = tensor.size(dim);
    Dims whole = tensor.shape();
    whole[dim] *= ranks();
    slices.emplace(name, TensorShard::slice(whole, dim, part * rank(), part * (rank() + 1)));
  }
  return slices;
}

std::map<std::string, SplitDim> split_parameters(const Module& network) {
  std::map<std::string, SplitDim> found;
  collect(network, "", found);
  return found;
}

std::map<std::string, TensorShard> slices_of(const Module& network) {
  std::map<std::string, TensorShard> slices;
  collect_slices(network, "", slices);
  return slices;
}

std::map<std::string, TensorShard> slices_of(const Module& network, const RankGroup& group) {
  const auto split = split_parameters(network);
  const std::int64_t rank = group.communicator.rank();
  std::map<std::string, TensorShard> slices;
  for (const auto& [name, tensor] : network.state_dict()) {
    const auto cut = split.find(name);
    if (cut == split.end()) continue;
    const int dim = cut->second.dim;
    const std::int64_t part = tensor.size(dim);
    Dims whole = tensor.shape();
    whole[dim] *= group.communicator.size();
    slices.emplace(name, TensorShard::slice(whole, dim, part * rank, part * (rank + 1)));
  }
  return slices;
}

NamedTensors gather_state(const Module& network, const RankGroup& group) {
  const NoGrad no_grad;
  const auto split = split_parameters(network);
  NamedTensors whole;
  for (const auto& [name, tensor] : network.state_dict()) {
    const auto cut = split.find(name);
    whole.emplace_back(name, cut == split.end()
                                 ? tensor.detach()
                                 : gather_alike(tensor.detach(), cut->second.dim, group, name));
  }
  return whole;
}

void load_split(Module& network, const NamedTensors& state, const RankGroup& group) {
  const auto split = split_parameters(network);
  const int ranks = group.communicator.size();
  NamedTensors own;
  for (const auto& [name, tensor] : state) {
    const auto cut = split.find(name);
    if (cut != split.end() &&
        (cut->second.dim >= tensor.rank() || tensor.size(cut->second.dim) % ranks != 0)) {
      throw UsageError(fmt::format("{}: expected dimension {} to be a multiple of {} ranks, got {}", name,
                                   cut->second.dim, ranks, tensor.describe()));
    }
    own.emplace_back(name, cut == split.end() ? tensor
                                              : slice_of(tensor.detach(), cut->second.dim,
                                                         group.communicator.rank(), ranks));
  }
  network.load_state_dict(own);
}

}  // namespace dtrain
