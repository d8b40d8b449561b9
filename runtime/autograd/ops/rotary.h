// Rotary position embedding (Su et al., "RoFormer", 2021): places as turns of queries and keys.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Turns pairs of features of a head by the angles of its token's place. x [B, L, E] or [B, …, L, E]; cosines
/// and sines [L, P], or [B, L, P] where the rows of a batch have places of their own, of f32 (f64 for f64);
/// no gradient goes to them. Pairs are features (i, i + P), as in Hugging Face's files, or (2i, 2i + 1) if
/// `interleaved`, as Meta publishes its own; features from 2 · P on stay as they are. One pass, backward too.
/// Throws UsageError for shapes that do not fit.
///
///     const Tensor q = rotary_embedding(query, cosines.slice(0, first, first + length), sines.slice(0,
///     first, …));
Tensor rotary_embedding(const Tensor& x, const Tensor& cosines, const Tensor& sines,
                        bool interleaved = false);

}  // namespace dtrain
