// Streams: order where CUDA gives it, and none where it does not.
#include <gtest/gtest.h>

#include <thread>

namespace {

__global__ void set(int* at, int value) { *at = value; }
__global__ void copy_one(const int* from, int* to) { *to = *from; }
__global__ void append(int* list, int value) { list[++list[0]] = value; }

class Streams : public testing::Test {
 protected:
  Streams() {
    for (cudaStream_t* stream : {&a, &b}) {
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    EXPECT_EQ(cudaMallocManaged(&memory, 64 * sizeof(int)), cudaSuccess);
    std::fill_n(memory, 64, 0);
  }
  ~Streams() override {
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(b), cudaSuccess);
  }
  static cudaEvent_t event() {
    cudaEvent_t made = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), cudaSuccess);
    return made;
  }
  cudaStream_t a = nullptr, b = nullptr;
  int* memory = nullptr;
};

TEST_F(Streams, KeepTheOrderOfTheirCalls) {
  for (int i = 1; i <= 20; ++i) EMULATED_CUDA_LAUNCH(append, 1, 1, 0, a, memory, i);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(memory[i], i);
}

TEST_F(Streams, WaitForEachOtherByEvents) {
  const cudaEvent_t ready = event();
  for (int i = 1; i <= 50; ++i) {
    EMULATED_CUDA_LAUNCH(set, 1, 1, 0, a, memory, i);
    ASSERT_EQ(cudaEventRecord(ready, a), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(b, ready, 0), cudaSuccess);
    EMULATED_CUDA_LAUNCH(copy_one, 1, 1, 0, b, memory, memory + 1);
    ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    ASSERT_EQ(memory[1], i);
  }
  EXPECT_EQ(cudaEventDestroy(ready), cudaSuccess);
}

TEST_F(Streams, AnEventThatWasNeverRecordedHoldsNobody) {
  const cudaEvent_t never = event();
  EXPECT_EQ(cudaEventQuery(never), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(a, never, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(never), cudaSuccess);
}

TEST_F(Streams, AnEventIsOverWhenItsStreamIsThere) {
  std::atomic<bool> open = false;
  const cudaHostFn_t wait = [](void* gate) {
    while (!*static_cast<std::atomic<bool>*>(gate)) std::this_thread::yield();
  };
  ASSERT_EQ(cudaLaunchHostFunc(a, wait, &open), cudaSuccess);
  const cudaEvent_t over = event();
  ASSERT_EQ(cudaEventRecord(over, a), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(over), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  open = true;
  EXPECT_EQ(cudaEventSynchronize(over), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(over), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(over), cudaSuccess);
}

TEST_F(Streams, BlockingOnesTakeTurnsWithTheLegacyStream) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  for (int i = 0; i < 10; ++i) {
    EMULATED_CUDA_LAUNCH(append, 1, 1, 0, blocking, memory, 2 * i);
    EMULATED_CUDA_LAUNCH(append, 1, 1, 0, nullptr, memory, 2 * i + 1);
  }
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(memory[i + 1], i);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(Streams, WithoutAnEventNothingOrdersThem) {
  const char* const seed = std::getenv("DTRAIN_EMULATED_SEED");
  if (seed == nullptr || std::string(seed) == "0")
    GTEST_SKIP() << "skipped: streams are at random with a seed alone";
  bool early = false;
  for (int i = 0; i < 100 && !early; ++i) {
    memory[1] = 0;
    for (int k = 0; k < 5; ++k) EMULATED_CUDA_LAUNCH(set, 1, 1, 0, a, memory, i + 1);
    EMULATED_CUDA_LAUNCH(copy_one, 1, 1, 0, b, memory, memory + 1);
    ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    early = memory[1] != i + 1;
    ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  }
  EXPECT_TRUE(early) << "a reader without an event never came before the writer";
}

TEST_F(Streams, OfAnotherGpuTakeNoEventRecords) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const cudaEvent_t other = event();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(other, a), cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaGetLastError());
  EXPECT_EQ(cudaEventDestroy(other), cudaSuccess);
}

}  // namespace
