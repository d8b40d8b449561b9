// Filters of nine weights, one to each lane of a vector and back, by loads of nine and a transposition in
// registers; included as winograd_loops_impl.h is.
#pragma once

constexpr int kLanesOfFilters = 16;

/// Rows become columns. Inlined, so that what the caller leaves out costs nothing.
inline void transpose(const __m512* from, __m512* to) {
  __m512 pairs[kLanesOfFilters], fours[kLanesOfFilters];
#pragma GCC unroll 8
  for (int i = 0; i < kLanesOfFilters; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(from[i], from[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(from[i], from[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kLanesOfFilters; i += 4) {
    fours[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    fours[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  // fours[4 i + j] has columns j, 4 + j, 8 + j, 12 + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 even_low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
    const __m512 even_high = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
    const __m512 odd_high = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
    to[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    to[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    to[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    to[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

constexpr int kCells = 9;  // of a filter: 3 x 3
constexpr __mmask16 kTheCells = (1U << kCells) - 1;

inline __m512 load_cells(const float* from) { return _mm512_maskz_loadu_ps(kTheCells, from); }
inline __m512 load_cells(const std::uint16_t* from) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kTheCells, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
inline void store_cells(__m512 cells, float* to) {
  _mm256_storeu_ps(to, _mm512_castps512_ps256(cells));
  _mm_store_ss(to + 8, _mm512_extractf32x4_ps(cells, 2));
}

template <class Weight>
inline void load_filters(const Weight* from, std::int64_t lane_stride, __m512* cells) {
  __m512 filters[kLanesOfFilters], all[kLanesOfFilters];
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanesOfFilters; ++lane) filters[lane] = load_cells(from + lane * lane_stride);
  transpose(filters, all);
#pragma GCC unroll 9
  for (int i = 0; i < kCells; ++i) cells[i] = all[i];
}

inline void store_filters(const __m512* cells, float* to, std::int64_t lane_stride) {
  __m512 all[kLanesOfFilters], filters[kLanesOfFilters];
#pragma GCC unroll 16
  for (int i = 0; i < kLanesOfFilters; ++i) all[i] = i < kCells ? cells[i] : _mm512_setzero_ps();
  transpose(all, filters);
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanesOfFilters; ++lane) store_cells(filters[lane], to + lane * lane_stride);
}
