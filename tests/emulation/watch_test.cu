// What the machine sees of a kernel's accesses: the bytes it moves, races in shared memory, and results that
// depend on the order of threads. Each case loses its GPU, so each runs in a process of its own.
#include <gtest/gtest.h>
#include <cub/block/block_reduce.cuh>

#include <cstdlib>

#include "emulation/include/emulated_work.h"
#include "emulation/kernel/watch.h"

namespace {

constexpr int kThreads = 256;

__global__ void reverse(const int* in, int* out, bool waits) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = in[threadIdx.x];
  if (waits) __syncthreads();
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

/// Lane 0 adds up what its warp has put down.
__global__ void warp_sums(const int* in, int* out, bool waits) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = in[threadIdx.x];
  if (waits) __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  int sum = 0;
  for (unsigned i = 0; i < 32; ++i) sum += values[threadIdx.x + i];
  out[threadIdx.x / 32] = sum;
}

/// The storage of a reduction is used again at once.
__global__ void two_sums(const int* in, int* out, bool waits) {
  using Reduce = cub::BlockReduce<int, kThreads>;
  __shared__ Reduce::TempStorage storage;
  const int first = Reduce(storage).Sum(in[threadIdx.x]);
  if (waits) __syncthreads();
  const int second = Reduce(storage).Sum(2 * in[threadIdx.x]);
  if (threadIdx.x == 0) out[0] = first + second;
}

__global__ void last_one_wins(const int* in, int* out, bool each_its_own) {
  out[each_its_own ? threadIdx.x : 0] = in[threadIdx.x];
}

__global__ void read_some(const float* in, float* out, int step) {
  out[threadIdx.x] = in[threadIdx.x * step] + in[threadIdx.x * step];
}

using Case = void (*)(const int*, int*, bool);

/// Runs the kernel under the checks; 0: fine, 1: it lost its context.
[[noreturn]] void run(Case kernel, const char* checks, bool right) {
  ::setenv("EMULATED_CUDA_CHECK", checks, 1);
  ::setenv("DTRAIN_EMULATED_CHECK", checks, 1);
  int *in = nullptr, *out = nullptr;
  cudaMallocManaged(&in, kThreads * sizeof(int));
  cudaMallocManaged(&out, kThreads * sizeof(int));
  for (int i = 0; i < kThreads; ++i) in[i] = i, out[i] = 0;
  EMULATED_CUDA_LAUNCH(kernel, 1, kThreads, 0, nullptr, in, out, right);
  std::_Exit(cudaDeviceSynchronize() == cudaSuccess ? 0 : 1);
}

class Watched : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // the machine has a thread
    if (!emulation::Watch::works()) GTEST_SKIP() << "skipped: a sanitizer is in the watch's place";
  }
};
using WatchedDeathTest = Watched;

TEST_F(WatchedDeathTest, FindsRacesInSharedMemory) {
  for (const Case kernel : {reverse, warp_sums, two_sums}) {
    EXPECT_EXIT(run(kernel, "races", true), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(run(kernel, "races", false), testing::ExitedWithCode(1), "race in shared memory");
  }
}

TEST_F(WatchedDeathTest, FindsResultsThatDependOnTheOrderOfThreads) {
  EXPECT_EXIT(run(last_one_wins, "twice", true), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(last_one_wins, "twice", false), testing::ExitedWithCode(1), "depend on the order");
  EXPECT_EXIT(run(reverse, "races,twice", true), testing::ExitedWithCode(0), "");
}

TEST_F(Watched, CountsEachSectorOfMemoryOnce) {
  float *in = nullptr, *out = nullptr;
  ASSERT_EQ(cudaMalloc(&in, 64 << 10), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&out, 64 << 10), cudaSuccess);
  const auto work_of = [&](int step) {
    emulation::note_work(true);
    emulation::take_work();
    EMULATED_CUDA_LAUNCH(read_some, 1, kThreads, 0, nullptr, in, out, step);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    emulation::note_work(false);
    const auto work = emulation::take_work();
    EXPECT_EQ(work.size(), 1U);
    return work.at(0);
  };
  EXPECT_EQ(work_of(1).name, "read_some");
  EXPECT_EQ(work_of(1).read_bytes, 4U * kThreads);
  EXPECT_EQ(work_of(2).read_bytes, 8U * kThreads);
  EXPECT_EQ(work_of(8).read_bytes, 32U * kThreads);
  EXPECT_EQ(work_of(16).read_bytes, 32U * kThreads);
  EXPECT_EQ(work_of(1).written_bytes, 4U * kThreads);
  EXPECT_EQ(cudaFree(in), cudaSuccess);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

}  // namespace
