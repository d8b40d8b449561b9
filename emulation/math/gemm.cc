#include "emulation/math/gemm.h"

#include <algorithm>
#include <vector>

#include <cuda_fp16.h>

namespace emulation {
namespace {

constexpr std::int64_t kRows = 8, kColumns = 16;  // of a tile
// Products that are added as floats before they join the sum. Thousands in a row would lose digits, of which
// nobody could say whether the kernels under test had lost them; what a library's order loses is its own.
constexpr std::int64_t kChain = 32;

/// Calls `f` with how an element of `matrix` is read.
template <class C, class F>
void with_reader(const Matrix& matrix, F f) {
  if (matrix.type == Element::f32 && !matrix.tf32) {
    return f([at = static_cast<const float*>(matrix.data)](std::int64_t i) { return static_cast<C>(at[i]); });
  }
  if (matrix.type == Element::bf16) {
    return f([at = static_cast<const std::uint16_t*>(matrix.data)](std::int64_t i) {
      return static_cast<C>(from_bf16(at[i]));
    });
  }
  if (matrix.type == Element::f16) {
    return f([at = static_cast<const std::uint16_t*>(matrix.data)](std::int64_t i) {
      return static_cast<C>(from_f16(at[i]));
    });
  }
  f([&](std::int64_t i) {
    const C value = load<C>(matrix.type, matrix.data, i);
    return matrix.tf32 ? static_cast<C>(round_to_tf32(static_cast<float>(value))) : value;
  });
}

/// Panels of kColumns columns, each row by row; missing columns are 0.
template <class C>
void pack(const Matrix& b, std::int64_t k, std::int64_t n, std::vector<C>& panels) {
  const std::int64_t count = (n + kColumns - 1) / kColumns;
  panels.assign(static_cast<std::size_t>(count * kColumns * k), C{});
  with_reader<C>(b, [&](auto read) {
    for (std::int64_t p = 0; p < count; ++p) {
      const std::int64_t width = std::min(kColumns, n - p * kColumns), first = p * kColumns * b.column_step;
      C* const to = panels.data() + p * kColumns * k;
      for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
          to[i * kColumns + j] = read(i * b.row_step + first + j * b.column_step);
        }
      }
    }
  });
}

/// Rows [from, from + count) of a, as groups of kRows column by column; missing rows are 0.
template <class C>
void pack_rows(const Matrix& a, std::int64_t from, std::int64_t count, std::int64_t k, C* to) {
  with_reader<C>(a, [&](auto read) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < k; ++i) {
        to[i * kRows + r] = r < count ? read((from + r) * a.row_step + i * a.column_step) : C{};
      }
    }
  });
}

/// Sums of a tile in vectors of kBytes, eight of them at a time: more do not stay in registers everywhere.
/// Each sum adds up its products in the same order whatever kBytes is.
template <int kBytes, class C>
inline __attribute__((always_inline)) void tile(std::int64_t k, const C* a, const C* b, C* sums) {
  constexpr std::int64_t kLanes = kBytes / sizeof(C), kVectors = kColumns / kLanes,
                         kAtOnce = kRows / kVectors;
  typedef C Row __attribute__((vector_size(kBytes), aligned(sizeof(C))));
  typedef double WideRow __attribute__((vector_size(kLanes * sizeof(double)), aligned(sizeof(double))));
  for (std::int64_t first = 0; first < kRows; first += kAtOnce) {
    WideRow sum[kAtOnce][kVectors] = {};
    for (std::int64_t begin = 0; begin < k; begin += kChain) {
      Row part[kAtOnce][kVectors] = {};
      for (std::int64_t i = begin; i < std::min(k, begin + kChain); ++i) {
#pragma GCC unroll 8
        for (std::int64_t r = 0; r < kAtOnce; ++r) {
#pragma GCC unroll 8
          for (std::int64_t v = 0; v < kVectors; ++v)
            part[r][v] +=
                a[i * kRows + first + r] * *reinterpret_cast<const Row*>(b + i * kColumns + v * kLanes);
        }
      }
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < kAtOnce; ++r) {
#pragma GCC unroll 8
        for (std::int64_t v = 0; v < kVectors; ++v) sum[r][v] += __builtin_convertvector(part[r][v], WideRow);
      }
    }
    for (std::int64_t r = 0; r < kAtOnce; ++r) {
      for (std::int64_t v = 0; v < kVectors; ++v)
        *reinterpret_cast<Row*>(sums + (first + r) * kColumns + v * kLanes) =
            __builtin_convertvector(sum[r][v], Row);
    }
  }
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
template <class C>
__attribute__((target("avx512f"))) void tile_avx512(std::int64_t k, const C* a, const C* b, C* sums) {
  tile<64>(k, a, b, sums);
}
template <class C>
__attribute__((target("avx2,fma"))) void tile_avx2(std::int64_t k, const C* a, const C* b, C* sums) {
  tile<32>(k, a, b, sums);
}
template <class C>
void tile_of(std::int64_t k, const C* a, const C* b, C* sums) {
  if (__builtin_cpu_supports("avx512f")) return tile_avx512(k, a, b, sums);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return tile_avx2(k, a, b, sums);
  tile<16>(k, a, b, sums);
}
#else
template <class C>
void tile_of(std::int64_t k, const C* a, const C* b, C* sums) {
  tile<16>(k, a, b, sums);
}
#endif

template <class C>
void run(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, C* out,
         bool accumulate) {
  std::vector<C> panels, rows(static_cast<std::size_t>(kRows * std::max<std::int64_t>(k, 1)));
  pack(b, k, n, panels);
  C sums[kRows * kColumns];
  for (std::int64_t i = 0; i < m; i += kRows) {
    const std::int64_t height = std::min(kRows, m - i);
    pack_rows(a, i, height, k, rows.data());
    for (std::int64_t j = 0; j < n; j += kColumns) {
      tile_of(k, rows.data(), panels.data() + j * k, sums);
      const std::int64_t width = std::min(kColumns, n - j);
      for (std::int64_t r = 0; r < height; ++r) {
        C* const to = out + (i + r) * n + j;
        for (std::int64_t c = 0; c < width; ++c) to[c] = sums[r * kColumns + c] + (accumulate ? to[c] : C{});
      }
    }
  }
}

}  // namespace

float from_f16(std::uint16_t bits) {
  __half_raw raw;
  raw.x = bits;
  return __half2float(__half(raw));
}

std::uint16_t to_f16(float value) { return static_cast<__half_raw>(__float2half_rn(value)).x; }

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, float* out,
              bool accumulate) {
  run(m, n, k, a, b, out, accumulate);
}
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, double* out,
              bool accumulate) {
  run(m, n, k, a, b, out, accumulate);
}

}  // namespace emulation
