// cub::BlockReduce for the emulated machine: the sum of a block's values in thread 0, warp by warp as CUB
// does it, with CUB's need of a barrier before its storage is used again.
#pragma once

namespace cub {

template <class T, int kThreadsX, int = 0, int kThreadsY = 1, int kThreadsZ = 1>
class BlockReduce {
 public:
  static constexpr int kThreads = kThreadsX * kThreadsY * kThreadsZ;
  static constexpr int kWarps = (kThreads + 31) / 32;
  struct TempStorage {
    T of_lane[kWarps * 32];
    T of_warp[kWarps];
  };

  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  /// The result is thread 0's alone.
  template <class Op>
  T Reduce(T value, Op op) {
    const int thread = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    const int lane = thread % 32, warp = thread / 32;
    const int lanes = kThreads - warp * 32 < 32 ? kThreads - warp * 32 : 32;
    storage_.of_lane[thread] = value;
    __syncwarp();
    if (lane == 0) {
      for (int i = 1; i < lanes; ++i) value = op(value, storage_.of_lane[thread + i]);
      storage_.of_warp[warp] = value;
    }
    __syncthreads();
    if (thread == 0) {
      for (int i = 1; i < kWarps; ++i) value = op(value, storage_.of_warp[i]);
    }
    return value;
  }
  T Sum(T value) {
    return Reduce(value, [](T a, T b) { return a + b; });
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub
