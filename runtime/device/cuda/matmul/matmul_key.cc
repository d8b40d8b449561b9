#include "runtime/device/cuda/matmul/matmul_plans.h"

namespace dtrain::cuda {

std::size_t MatmulKeyHash::operator()(const MatmulKey& key) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
    hash ^= hash >> 29;
  };
  for (const std::int64_t value : {key.m, key.n, key.k, key.batch, key.out_leading, key.out_batch_stride})
    add(value);
  for (const Operand& operand : {key.first, key.second}) {
    add(operand.transposed ? 1 : 0);
    add(operand.leading);
    add(operand.batch_stride);
    add(operand.alignment);
  }
  add(key.out_alignment);
  add(static_cast<int>(key.out_dtype));
  add(static_cast<int>(key.dtype) * 8 + (key.bias ? 4 : 0) + (key.relu ? 2 : 0) + (key.accumulate ? 1 : 0));
  return hash;
}

int alignment_of(const void* data) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  int alignment = 256;
  while (alignment > 1 && address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// A row-major [rows, columns] array is a column-major [columns, rows] one: what cuBLAS wants of us
// untransposed.
bool as_operand(const View& view, Operand& operand) {
  const std::int64_t rows = view.shape[1], columns = view.shape[2];
  const std::int64_t row_step = view.strides[1], column_step = view.strides[2];
  operand.batch_stride = view.shape[0] == 1 ? 0 : view.strides[0];
  operand.alignment = alignment_of(view.data);
  if ((column_step == 1 || columns == 1) && (row_step >= columns || rows == 1)) {
    operand.transposed = false;
    operand.leading = rows == 1 ? columns : row_step;
    return true;
  }
  if ((row_step == 1 || rows == 1) && (column_step >= rows || columns == 1)) {
    operand.transposed = true;
    operand.leading = columns == 1 ? rows : column_step;
    return true;
  }
  return false;
}

}  // namespace dtrain::cuda
