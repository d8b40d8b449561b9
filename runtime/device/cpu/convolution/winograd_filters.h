// Filters of nine weights, one to each lane of a vector and back, one by one; included as
// winograd_loops_impl.h is. AVX-512 has its own, which transpose in registers.
#pragma once

inline float weight_of(float weight) { return weight; }
inline float weight_of(std::uint16_t weight) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(weight) << 16);
}

constexpr int kCells = 9;  // of a filter: 3 x 3

template <class Weight>
inline void load_filters(const Weight* from, std::int64_t lane_stride, V* cells) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
#pragma GCC unroll 9
  for (int i = 0; i < kCells; ++i) {
#pragma GCC unroll 8
    for (int lane = 0; lane < kLanes; ++lane) cells[i][lane] = weight_of(from[lane * lane_stride + i]);
  }
}

inline void store_filters(const V* cells, float* to, std::int64_t lane_stride) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
  for (int lane = 0; lane < kLanes; ++lane, to += lane_stride) {
#pragma GCC unroll 9
    for (int i = 0; i < kCells; ++i) to[i] = cells[i][lane];
  }
}
