// What of a parameter of the whole network a rank has: the one record that every way of sharing parameters
// comes down to. What is saved, loaded and limited follows from it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/layout/saved_tensors.h"
#include "runtime/nn/module.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// A range of a flattened parameter.
struct ShardRange {
  std::size_t first = 0, count = 0;
};

/// Of a tied weight whose layers are in several stages of a pipeline: each holds a copy.
struct Tie {
  std::string first;        ///< the name by which the whole network counts it: the first of its names
  std::vector<int> stages;  ///< that hold it, in order
  bool is_copy = false;     ///< another stage has the first name, counts it and saves it
};

struct ParameterLayout {
  std::string name;
  Tensor whole;  ///< the module's; its memory may be away where `own` is defined
  /// Of the unsplit parameter, the slice that `whole` is (tensor parallelism); nothing: all of it.
  std::optional<TensorShard> slice = std::nullopt;
  /// Of the elements of `whole`, those that this rank updates and saves (ZeRO); nothing: all, in its shape.
  std::optional<ShardRange> range = std::nullopt;
  Tensor own = {};  ///< the elements of `range`, [count], where they have memory of their own
  /// Among the whole network's parameters, in its order: what is added up parameter by parameter has the same
  /// bits wherever the network is cut. Nothing: a buffer.
  std::optional<std::size_t> number = std::nullopt;
  std::optional<Tie> tie = std::nullopt;

  bool is_owned() const noexcept { return !range || range->count > 0; }
  /// As checkpoints have it.
  Dims saved_shape() const { return slice ? slice->shape : whole.shape(); }
  /// As this rank's optimizer has it.
  Dims held_shape() const;
  /// What of the saved tensor this rank has; nothing: all of it.
  std::optional<TensorShard> part() const;
  /// The elements of `range`, [count], in their own memory or the parameter's; without history.
  Tensor owned() const;
};

/// The parameters and buffers of `network`, by all names that they have, whole.
std::vector<ParameterLayout> layouts_of(const Module& network);

/// The one that `name` belongs to, as "fc1.weight" and its state, "fc1.weight.exp_avg", do; null without.
const ParameterLayout* layout_of(const std::string& name, const std::vector<ParameterLayout>& parameters);

/// What of the saved tensor `values` are, which are saved as `name`; nothing: all of it. State that has not
/// its parameter's shape (a count of steps) is whole.
std::optional<TensorShard> part_of(const std::string& name, const Tensor& values,
                                   const std::vector<ParameterLayout>& parameters);

/// Those of `files` that have a name here, on `device`, of each what this rank has by `parameters`; what
/// belongs to none of them is read whole, and what belongs to one of which this rank owns nothing is left
/// out. Throws what reading throws.
NamedTensors read_state(const TensorFiles& files, const std::vector<ParameterLayout>& parameters,
                        const std::shared_ptr<Device>& device, const NameHere& name_here);

/// Reads this rank's elements of every parameter into their place. Throws UsageError that lists every
/// parameter which `files` lack, or have in another shape, and what reading throws.
void read_in_place(const TensorFiles& files, const std::vector<ParameterLayout>& parameters);

}  // namespace dtrain
