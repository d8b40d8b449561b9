// What of a checkpoint a rank of sharded data parallelism writes and reads: the elements that it owns, of
// parameters and of the optimizer's state alike. The files say which they are, so any number of ranks reads
// them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "collectives/communicator.h"
#include "parallel/layout/saved_tensors.h"
#include "parallel/sync/sharded/shard_layout.h"

namespace dtrain {

/// A parameter with what this rank owns of it.
struct OwnedParameter {
  std::string name;
  Tensor whole;  ///< its memory may be away where `own` is defined
  ShardRange range;
  Tensor own = {};  ///< the owned elements, [count], where they have memory of their own
  /// Of an undivided parameter, the slice that `whole` is; nothing: all of it.
  std::optional<TensorPart> slice = std::nullopt;

  bool is_owned() const noexcept { return range.count > 0; }
  /// As checkpoints have it.
  Dims saved_shape() const { return slice ? slice->shape : whole.shape(); }
  TensorPart part() const;
  /// The owned elements, [count], in their own memory or the parameter's; without history.
  Tensor owned() const;
};

/// `model`: this rank's elements of every parameter, and on rank 0 the buffers. `state` is named_state() of
/// an optimizer of owned(): of a parameter's state, what has its shape is cut like it, and the rest (a count
/// of steps) is written by the rank that owns the first element; what belongs to no parameter, by rank 0.
StateParts sharded_parts(const std::vector<OwnedParameter>& parameters, const NamedTensors& buffers,
                         const NamedTensors& state, int rank);

/// Collective. Reads every rank's share of `files` and throws on all of them where a checksum is wrong on
/// one: there DataError, on the others Error.
void check_values_together(const TensorFiles& files, Communicator& communicator, const Deadline& deadline);

/// Reads this rank's elements of every parameter with memory of its own. Throws UsageError that lists every
/// parameter which `files` lack, or have in another shape, and what reading throws.
void read_owned(const TensorFiles& files, const std::vector<OwnedParameter>& parameters);

/// What an optimizer of owned() takes over from the state of all parameters that is in `files`, of what has a
/// name here. Throws what reading throws.
NamedTensors owned_state(const TensorFiles& files, const std::vector<OwnedParameter>& parameters,
                         const std::shared_ptr<Device>& device, const NameHere& name_here);

}  // namespace dtrain
