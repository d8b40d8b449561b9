// Combines the contributions of ranks, element by element, along the tree of algorithm/sum_tree.h: the same
// bits on any rank, whatever was combined elsewhere before.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/communicator.h"

namespace dtrain::p2p {

/// What a rank contributed, in the dtype of the call; or what several consecutive ranks' contributions were
/// combined to, in sum_dtype() of it.
struct Operand {
  const void* data;
  int leaves = 1;  ///< how many ranks' contributions it is
};

/// What is combined and not yet rounded: float32 for bf16 and fp16, else the dtype itself.
DType sum_dtype(DType dtype) noexcept;

/// out[i] = in[0][i] op in[1][i] op …, along the tree over all their leaves, from left to right; together the
/// operands are nodes of that tree. `out`, of `dtype`, may be one of the operands of one leaf. bf16 and fp16
/// are rounded once. Integers wrap. max and min keep the left operand when neither compares greater (NaN).
void reduce(DType dtype, ReduceOp op, void* out, std::span<const Operand> in, std::size_t count) noexcept;

/// As reduce(), for a node that will be an operand: `out` is of sum_dtype(dtype), or of `dtype` where it is a
/// single leaf, and none of the operands.
void reduce_to_node(DType dtype, ReduceOp op, void* out, std::span<const Operand> in,
                    std::size_t count) noexcept;

}  // namespace dtrain::p2p
