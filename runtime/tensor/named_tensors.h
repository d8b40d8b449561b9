// Tensors with the names they have in a state dict; the order is part of the value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain {

using NamedTensor = std::pair<std::string, Tensor>;
using NamedTensors = std::vector<NamedTensor>;

}  // namespace dtrain
