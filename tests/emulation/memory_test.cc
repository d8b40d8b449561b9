// Memory of the emulated machine: undefined contents, copies, what is refused, and what damage costs.
#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace {

TEST(Memory, IsNotANumberBeforeItIsWritten) {
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100 * sizeof(float)), cudaSuccess);
  float values[100] = {};
  ASSERT_EQ(cudaMemcpy(values, memory, sizeof values, cudaMemcpyDeviceToHost), cudaSuccess);
  for (const float value : values) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(Memory, PageableSourcesAreTakenWhenACopyReturnsPinnedOnesLater) {
  int *pinned = nullptr, *memory = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, 2 * sizeof(int)), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  std::atomic<bool> open = false;
  const cudaHostFn_t wait = [](void* gate) {
    while (!*static_cast<std::atomic<bool>*>(gate)) {
    }
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream, wait, &open), cudaSuccess);
  int pageable = 1;
  *pinned = 1;
  ASSERT_EQ(cudaMemcpyAsync(memory, &pageable, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory + 1, pinned, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  pageable = *pinned = 2;
  open = true;
  int got[2] = {};
  ASSERT_EQ(cudaMemcpyAsync(got, memory, sizeof got, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 2);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(Memory, CopiesThatDoNotFitAreRefused) {
  char *memory = nullptr, host[64] = {};
  ASSERT_EQ(cudaMalloc(&memory, 32), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, host, 33, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(memory + 16, host, 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, memory, 32, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, host, 32, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(memory, host, 32, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

TEST(Memory, RunsOutAsAGpusDoes) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // not sticky
}

TEST(Memory, OfAStreamGoesWhenTheStreamIsThere) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  int* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, 64 * sizeof(int), stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, 64 * sizeof(int), stream), cudaSuccess);
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, memory, sizeof(int), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*pinned, 0);
  EXPECT_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// Loses its GPU, the third, for good.
TEST(Memory, WritingBehindAPieceLosesTheContext) {
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  char* memory = nullptr;
  ASSERT_EQ(cudaMallocManaged(&memory, 32), cudaSuccess);
  std::memset(memory, 0, 33);
  static_cast<void>(cudaFree(memory));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST(Memory, OfTheProgramCanBeRegistered) {
  std::vector<int> own(1000, 7);
  void* on_device = nullptr;
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, own.data(), 0), cudaErrorInvalidValue);
  ASSERT_EQ(cudaHostRegister(own.data(), own.size() * sizeof(int), 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(own.data() + 10, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, own.data(), 0), cudaSuccess);
  EXPECT_EQ(on_device, own.data());
  EXPECT_EQ(cudaFreeHost(own.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
}

}  // namespace
