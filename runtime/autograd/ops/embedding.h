// Rows of a table by number.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// weight [count, width], index i64 or i32 of any shape → index.shape + [width]. The row `padding_index`
/// (negative: from the end) gets no gradient. Throws UsageError where they do not fit; the kernel does for an
/// index outside.
Tensor embedding(const Tensor& index, const Tensor& weight,
                 std::optional<std::int64_t> padding_index = std::nullopt);

}  // namespace dtrain
