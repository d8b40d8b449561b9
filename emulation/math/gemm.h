// Products of matrices, fast enough that a test can train a network: packed panels and a kernel that the
// compiler turns into vectors.
#pragma once

#include <cstdint>

#include "emulation/math/element.h"

namespace emulation {

/// Element (i, j) is at i · row_step + j · column_step.
struct Matrix {
  Element type = Element::f32;
  const void* data = nullptr;
  std::int64_t row_step = 0, column_step = 0;
  bool tf32 = false;  ///< rounded on the way in
};

/// out [m, n], dense and row-major, becomes a [m, k] · b [k, n], or has it added. Sums over k are in C, in
/// one order that depends on nothing but k.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, float* out,
              bool accumulate);
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, double* out,
              bool accumulate);

}  // namespace emulation
