// Layers whose parameters are cut over the ranks of a group, and how such a network is saved and loaded as
// the network that it is a part of.
#pragma once

#include <map>
#include <string>

#include "parallel/functional.h"
#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// A slice of a parameter along one dimension: rank r of n holds the r-th of n equal ones.
struct SplitDim {
  int dim = 0;
};

/// Base of layers that hold slices. Parameters that are not named are whole, and equal on all ranks.
class SplitModule : public Module {
 public:
  /// Which of its own parameters are slices, by name ("weight").
  const std::map<std::string, SplitDim>& split_parameters() const noexcept { return split_; }
  /// The same with what of the unsplit parameter each slice is.
  std::map<std::string, TensorShard> own_slices() const;

 protected:
  explicit SplitModule(const RankGroup& group) : group_(group) {}

  const RankGroup& group() const noexcept { return group_; }
  int rank() const noexcept { return group_.communicator.rank(); }
  int ranks() const noexcept { return group_.communicator.size(); }
  /// This rank's slice of `whole` along `dim` as a parameter. Throws UsageError, beginning with `layer`,
  /// where the dimension is not a multiple of the ranks.
  Tensor add_slice(std::string_view layer, std::string_view name, const Tensor& whole, int dim);
  /// Another layer's slice along `dim` as a parameter of this one, too (tied weights).
  Tensor add_tied_slice(std::string_view name, const Tensor& slice, int dim);

 private:
  RankGroup group_;
  std::map<std::string, SplitDim> split_;
};

/// The split parameters of `network` and of all below it, by their dotted names.
std::map<std::string, SplitDim> split_parameters(const Module& network);

/// The same with what of the unsplit parameter each slice is, by the group that its module knows; empty for a
/// network that is whole.
std::map<std::string, TensorShard> slices_of(const Module& network);
/// The same of all of them; `group` is the one that it is split over.
std::map<std::string, TensorShard> slices_of(const Module& network, const RankGroup& group);

/// Collective over `group`. network's state_dict() as the unsplit network has it: slices are gathered. On
/// every rank.
NamedTensors gather_state(const Module& network, const RankGroup& group);

/// Loads an unsplit network's `state` into this rank's part of it. Throws UsageError as load_state_dict().
void load_split(Module& network, const NamedTensors& state, const RankGroup& group);

}  // namespace dtrain
