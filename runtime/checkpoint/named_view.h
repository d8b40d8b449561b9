// A tensor's name with a view of its values, or of the part of them this process holds: what a checkpoint is
// made of.
#pragma once

#include <optional>
#include <string>

#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/device/view.h"

namespace dtrain {

/// `name` is the PyTorch state_dict name ("conv1.weight"); `view` is borrowed, dense row-major, in CPU
/// memory.
struct NamedView {
  std::string name;
  View view;
  /// Which part of the tensor the view holds, its shape being part->held_shape(); nothing: all of it.
  std::optional<TensorShard> part = std::nullopt;
};

}  // namespace dtrain
