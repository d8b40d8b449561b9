// A tensor's name with a view of its values: what a checkpoint is made of.
#pragma once

#include <string>

#include "runtime/device/view.h"

namespace dtrain {

/// `name` is the PyTorch state_dict name ("conv1.weight"); `view` is borrowed, dense row-major, in CPU
/// memory.
struct NamedView {
  std::string name;
  View view;
};

}  // namespace dtrain
