// Which dtype an operation of several dtypes gives, as PyTorch has it, and which one it is computed in.
#pragma once

#include <algorithm>
#include <optional>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// What kernels of `device` compute numbers of `dtype` in: small integers and truth values in int64, whose
/// lowest bits are those of their own arithmetic; float16 in float32 where there are no kernels for it.
inline DType computed_in(DType dtype, const Device& device) noexcept {
  if (dtype == DType::f16) return device.has_float16() ? DType::f16 : DType::f32;
  return is_floating(dtype) ? dtype : DType::i64;
}

/// The same of what is there.
inline Tensor as_computed(const Tensor& x) { return x.to(computed_in(x.dtype(), x.device())); }

/// torch.result_type: of truth values, integers and floating numbers the highest kind decides; of one kind a
/// tensor with dimensions before one without, then the wider dtype; of int8 and uint8 int16. Nothing for two
/// different floating dtypes: a silent widening would double what a training step moves.
inline std::optional<DType> result_type(const Tensor& a, const Tensor& b) {
  const DType left = a.dtype(), right = b.dtype();
  if (left == right) return left;
  const auto kind = [](DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; };
  if (kind(left) != kind(right)) return kind(left) > kind(right) ? left : right;
  if (kind(left) == 2) return std::nullopt;
  if ((a.rank() == 0) != (b.rank() == 0)) return a.rank() == 0 ? right : left;
  if (size_of(left) == 1 && size_of(right) == 1) return DType::i16;
  return size_of(left) > size_of(right) ? left : right;
}

}  // namespace dtrain
