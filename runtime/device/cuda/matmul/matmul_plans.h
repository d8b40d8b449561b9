// What cuBLASLt was asked and what it answered: one plan for each shape, layout and epilogue, kept for the
// life of the device. The key is plain data, so that it is tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/kernels.h"

namespace dtrain::cuda {

/// How one operand lies in memory: as a column-major matrix with a leading dimension, perhaps transposed.
struct Operand {
  bool transposed = false;  ///< op T in cuBLAS's words
  std::int64_t leading = 0;
  std::int64_t batch_stride = 0;
  int alignment = 0;  ///< of the address, bytes, a power of two up to 256
  bool operator==(const Operand&) const = default;
};

/// out [batch, m, n] = a [batch, m, k] · b [batch, k, n], all row-major in our words. cuBLAS sees
/// column-major arrays and computes outᵀ [n, m] = bᵀ · aᵀ: so its first operand is our b, and a bias along
/// its rows is one along our columns.
struct MatmulKey {
  std::int64_t m = 0, n = 0, k = 0, batch = 0;
  Operand first = {}, second = {};  ///< our b and our a
  std::int64_t out_leading = 0, out_batch_stride = 0;
  int out_alignment = 0;
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;  ///< dtype, or f32 for gradients of f32 parameters from bf16 or f16
  bool bias = false, relu = false, accumulate = false;
  bool operator==(const MatmulKey&) const = default;
};

struct MatmulKeyHash {
  std::size_t operator()(const MatmulKey& key) const noexcept;
};

/// The operand that `view` [batch, rows, columns] is, when it can be one as it lies: false when neither its
/// rows nor its columns are dense, and it must be copied first.
bool as_operand(const View& view, Operand& operand);

/// Largest power of two up to 256 that divides the address.
int alignment_of(const void* data) noexcept;

}  // namespace dtrain::cuda
