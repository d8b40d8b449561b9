// How a kernel reads memory at its speed: 16 bytes a load, and several loads on their way before the first is
// used. Memory answers after some 600 cycles; what a GPU reads a second is what is on its way, divided by
// that.
#pragma once

#include <utility>

#include "runtime/device/cuda/launch.cuh"

namespace dtrain::cuda {

/// V neighbouring elements, which one load or store moves.
template <class T, int V>
struct alignas(V * sizeof(T)) Pack {
  T at[V];
};

/// Elements of T that the widest load moves.
template <class T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

inline __host__ __device__ bool is_aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

/// `pointer`, of which the compiler then knows that it does not point into shared or local memory.
template <class T>
__device__ __forceinline__ T* in_global(T* pointer) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(pointer));
#endif
  return pointer;
}

/// V elements from `from`, which is aligned to 16 bytes, or to V elements where those are less.
template <int V, class T>
__device__ __forceinline__ void load_wide(const T* from, T (&to)[V]) {
  constexpr int kStep = V < kWide<T> ? V : kWide<T>;
#pragma unroll
  for (int v = 0; v < V; v += kStep) {
    const auto pack = *reinterpret_cast<const Pack<T, kStep>*>(from + v);
#pragma unroll
    for (int k = 0; k < kStep; ++k) to[v + k] = pack.at[k];
  }
}

/// Calls `use(load(i), i)` for first, first + step, … below `end`, in this order; N loads are on their way
/// before the first of them is used.
template <int N, class Index, class Load, class Use>
__device__ __forceinline__ void for_each_ahead(Index first, Index end, Index step, Load load, Use use) {
  for (Index i = first; i < end; i += N * step) {
    decltype(load(i)) near[N] = {};
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (i + n * step < end) near[n] = load(i + n * step);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (i + n * step < end) use(near[n], i + n * step);
    }
  }
}

/// Those elements of a row that one thread takes, first, first + step, … below `end`, for several passes: N
/// stay in registers and are read once, what is behind them is read by each pass.
template <int N, class Load>
class RowReader {
 public:
  __device__ RowReader(std::int64_t first, std::int64_t end, std::int64_t step, Load load)
      : first_(first), end_(end), step_(step), load_(load) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (first + n * step < end) kept_[n] = load(first + n * step);
    }
  }
  /// Calls `use(element, i)` for each, in their order.
  template <class Use>
  __device__ __forceinline__ void pass(Use use) const {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (first_ + n * step_ < end_) use(kept_[n], first_ + n * step_);
    }
    for_each_ahead<N>(first_ + N * step_, end_, step_, load_, use);
  }

 private:
  std::int64_t first_, end_, step_;
  Load load_;
  decltype(std::declval<Load>()(std::int64_t{})) kept_[N] = {};
};

template <int N, class Load>
__device__ __forceinline__ RowReader<N, Load> read_row(std::int64_t first, std::int64_t end,
                                                       std::int64_t step, Load load) {
  return RowReader<N, Load>(first, end, step, load);
}

}  // namespace dtrain::cuda
