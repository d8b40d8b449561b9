// A row for each warp, and what its lanes find out together.
#pragma once

#include "runtime/device/cuda/float_pair.cuh"
#include "runtime/device/cuda/launch.cuh"

namespace dtrain::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline std::int64_t first_row() { return first_item() / kWarp; }
__device__ inline std::int64_t row_step() { return item_step() / kWarp; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x % kWarp); }

inline unsigned blocks_for_rows(const Context& context, std::int64_t rows) {
  return blocks_for(context, rows * kWarp);
}

template <class T>
__device__ T warp_max(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, step);
    if (other > value || other != other) value = other;
  }
  return value;
}

__device__ inline double warp_sum(double value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
// TwoSum of a and b is that of b and a: all lanes end with the same bits.
__device__ inline FloatPair warp_sum(FloatPair value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const FloatPair other = {__shfl_xor_sync(kAllLanes, value.high, step),
                             __shfl_xor_sync(kAllLanes, value.low, step)};
    value = plus(value, other);
  }
  return value;
}

}  // namespace dtrain::cuda
