// What operations of every layer ask of tensors before they touch memory.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Throws UsageError naming `what` and the shape for a negative extent, and where the elements, their strides
/// or their bytes cannot be counted in 63 bits.
void check_extents(std::string_view what, const Dims& shape, std::size_t element_bytes = 1);

/// Throws UsageError naming `what` and both devices unless a and b are on one. An undefined b is on any.
void check_same_device(std::string_view what, const Tensor& a, const Tensor& b);

/// Throws UsageError naming `what` where `target` is a broadcast view: writing would write an element many
/// times.
void check_no_overlap(std::string_view what, const Tensor& target);

}  // namespace dtrain
