// Kernels on the emulated machine: every thread runs, waits for its block and its warp, and what CUDA forbids
// is found.
#include <gtest/gtest.h>
#include <cub/block/block_reduce.cuh>

#include <numeric>
#include <vector>

namespace {

constexpr int kThreads = 256;

__global__ void count_threads(int* hits) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  hits[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
}

__global__ void reverse(const int* in, int* out) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = values[kThreads - 1 - threadIdx.x];
  __syncthreads();
}

__global__ void add_up(const int* in, int count, long long* out) {
  using Reduce = cub::BlockReduce<long long, kThreads>;
  __shared__ Reduce::TempStorage storage;
  for (int round = 0; round < 3; ++round) {
    long long sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += in[i];
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0) out[round] = sum;
    __syncthreads();
  }
}

__global__ void shuffle(int* sums, int* below, unsigned* votes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = static_cast<int>(threadIdx.x);
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, bits);
  sums[threadIdx.x] = sum;
  below[threadIdx.x] = __shfl_up_sync(0xffffffffU, lane, 1);
  votes[threadIdx.x] = __ballot_sync(0xffffffffU, lane % 3 == 0);
}

__global__ void part_of_a_warp(int* out) {
  if (threadIdx.x % 32 < 8) out[threadIdx.x] = __shfl_xor_sync(0xffU, static_cast<int>(threadIdx.x), 1);
}

__global__ void atomics(int* total, int* largest) {
  atomicAdd(total, 1);
  atomicMax(largest, static_cast<int>(threadIdx.x));
}

__global__ void exits_early(int* out) {
  if (threadIdx.x >= 100) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void diverges(int limit) {
  if (static_cast<int>(threadIdx.x) < limit) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

class Kernels : public testing::Test {
 protected:
  template <class T>
  T* array(std::size_t count) {
    T* memory = nullptr;
    EXPECT_EQ(cudaMallocManaged(&memory, count * sizeof(T)), cudaSuccess);
    std::fill_n(memory, count, T{});
    return memory;
  }
  void finish() { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); }
};

TEST_F(Kernels, RunEveryThreadOnce) {
  for (const dim3 grid : {dim3(1), dim3(7), dim3(3, 2), dim3(2, 3, 4)}) {
    for (const dim3 block : {dim3(1), dim3(33), dim3(1024), dim3(8, 4, 2)}) {
      const std::size_t count = std::size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z;
      int* const hits = array<int>(count);
      EMULATED_CUDA_LAUNCH(count_threads, grid, block, 0, nullptr, hits);
      finish();
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(hits[i], 1) << i;
      cudaFree(hits);
    }
  }
}

TEST_F(Kernels, WaitForTheirBlock) {
  int *const in = array<int>(kThreads * 4), *const out = array<int>(kThreads * 4);
  std::iota(in, in + kThreads * 4, 0);
  EMULATED_CUDA_LAUNCH(reverse, 4, kThreads, 0, nullptr, in, out);
  finish();
  for (int i = 0; i < kThreads * 4; ++i)
    ASSERT_EQ(out[i], i / kThreads * kThreads + kThreads - 1 - i % kThreads);
}

TEST_F(Kernels, ReduceOverABlock) {
  int* const in = array<int>(1000);
  auto* const out = array<long long>(3);
  std::iota(in, in + 1000, 1);
  EMULATED_CUDA_LAUNCH(add_up, 1, kThreads, 0, nullptr, in, 1000, out);
  finish();
  for (int round = 0; round < 3; ++round) EXPECT_EQ(out[round], 500500);
}

TEST_F(Kernels, ExchangeWithinAWarp) {
  int *const sums = array<int>(64), *const below = array<int>(64);
  auto* const votes = array<unsigned>(64);
  EMULATED_CUDA_LAUNCH(shuffle, 1, 64, 0, nullptr, sums, below, votes);
  finish();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(sums[i], i < 32 ? 496 : 496 + 32 * 32);
    EXPECT_EQ(below[i], std::max(i % 32 - 1, 0));
    EXPECT_EQ(votes[i], 0x49249249U);
  }
}

TEST_F(Kernels, ExchangeWithinPartOfAWarp) {
  int* const out = array<int>(64);
  EMULATED_CUDA_LAUNCH(part_of_a_warp, 1, 64, 0, nullptr, out);
  finish();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[32 + i], 32 + (i ^ 1));
}

TEST_F(Kernels, UpdateAtomically) {
  int* const totals = array<int>(2);
  EMULATED_CUDA_LAUNCH(atomics, 5, 300, 0, nullptr, totals, totals + 1);
  finish();
  EXPECT_EQ(totals[0], 1500);
  EXPECT_EQ(totals[1], 299);
}

TEST_F(Kernels, DoNotWaitForThreadsThatAreDone) {
  int* const out = array<int>(128);
  EMULATED_CUDA_LAUNCH(exits_early, 1, 128, 0, nullptr, out);
  finish();
  EXPECT_EQ(std::accumulate(out, out + 128, 0), 100);
}

TEST_F(Kernels, ConfigurationsThatNoGpuTakesAreRefusedAtOnce) {
  int* const hits = array<int>(1);
  for (const auto& [grid, block] : {std::pair(dim3(0), dim3(1)), std::pair(dim3(1), dim3(1025)),
                                    std::pair(dim3(1, 65536), dim3(1)), std::pair(dim3(1), dim3(1, 1, 65))}) {
    EMULATED_CUDA_LAUNCH(count_threads, grid, block, 0, nullptr, hits);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  finish();
  EXPECT_EQ(hits[0], 0);
}

// Loses its GPU, the fourth, for good.
TEST_F(Kernels, ABarrierNotAllThreadsReachLosesTheContext) {
  ASSERT_EQ(cudaSetDevice(3), cudaSuccess);
  EMULATED_CUDA_LAUNCH(diverges, 1, 64, 0, nullptr, 10);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
