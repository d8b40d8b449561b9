// Combines the contributions of ranks, element by element, in rank order: the same bits on any rank.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/communicator.h"

namespace dtrain::p2p {

/// out[i] = in[0][i] op in[1][i] op …, from the left; `out` may be one of the inputs. bf16 is combined in
/// float32 and rounded once. Integers wrap. max and min keep the earlier operand when neither compares
/// greater (NaN).
void reduce(DType dtype, ReduceOp op, void* out, std::span<const void* const> in, std::size_t count) noexcept;

}  // namespace dtrain::p2p
