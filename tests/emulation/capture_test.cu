// Recording streams into graphs, and all that CUDA refuses meanwhile.
#include <gtest/gtest.h>

#include <thread>

namespace {

__global__ void add(int* at, int value) { *at += value; }
__global__ void multiply(int* at, int factor) { *at *= factor; }

class Capture : public testing::Test {
 protected:
  Capture() {
    for (cudaStream_t* stream : {&a, &b}) {
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    for (cudaEvent_t* event : {&fork, &join}) {
      EXPECT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
    }
    EXPECT_EQ(cudaMallocManaged(&memory, 64), cudaSuccess);
    std::fill_n(memory, 16, 0);
  }
  ~Capture() override {
    static_cast<void>(cudaGetLastError());
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    for (const cudaEvent_t event : {fork, join}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    for (const cudaStream_t stream : {a, b}) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(a, mode), cudaSuccess);
  }
  /// Nothing may come of the recording.
  void expect_invalidated(cudaError_t expected = cudaErrorStreamCaptureInvalidated) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), expected);
    EXPECT_EQ(graph, nullptr);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    EXPECT_EQ(cudaStreamIsCapturing(a, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  }
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  int* memory = nullptr;
};

TEST_F(Capture, RunsNothingUntilItsGraphIsLaunched) {
  begin();
  EMULATED_CUDA_LAUNCH(add, 1, 1, 0, a, memory, 1);
  ASSERT_EQ(cudaEventRecord(fork, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
  EMULATED_CUDA_LAUNCH(add, 1, 1, 0, b, memory + 1, 5);
  EMULATED_CUDA_LAUNCH(multiply, 1, 1, 0, a, memory, 3);
  ASSERT_EQ(cudaEventRecord(join, b), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(a, join, 0), cudaSuccess);
  EMULATED_CUDA_LAUNCH(add, 1, 1, 0, a, memory + 1, 1);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(memory[0], 0);
  int expected = 0;
  for (int i = 1; i <= 5; ++i) {
    ASSERT_EQ(cudaGraphLaunch(executable, a), cudaSuccess);
    expected = (expected + 1) * 3;
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);  // while it runs
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(memory[0], expected);
  EXPECT_EQ(memory[1], 30);
}

TEST_F(Capture, IsInvalidatedByWhatMayWait) {
  void* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, 16), cudaSuccess);
  const std::pair<const char*, std::function<cudaError_t()>> forbidden[] = {
      {"malloc",
       [&] {
         void* more = nullptr;
         return cudaMalloc(&more, 16);
       }},
      {"free", [&] { return cudaFree(other); }},
      {"host alloc",
       [&] {
         void* more = nullptr;
         return cudaMallocHost(&more, 16);
       }},
      {"synchronize the stream", [&] { return cudaStreamSynchronize(a); }},
      {"synchronize another", [&] { return cudaStreamSynchronize(b); }},
      {"synchronize the device", [&] { return cudaDeviceSynchronize(); }},
      {"query an event", [&] { return cudaEventQuery(join); }},
      {"copy and wait",
       [&] {
         int host = 0;
         return cudaMemcpy(memory, &host, 4, cudaMemcpyDefault);
       }},
  };
  for (const auto& [name, call] : forbidden) {
    SCOPED_TRACE(name);
    begin();
    EMULATED_CUDA_LAUNCH(add, 1, 1, 0, a, memory, 1);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EMULATED_CUDA_LAUNCH(add, 1, 1, 0, a, memory, 1);
    EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
    expect_invalidated();
  }
  EXPECT_EQ(cudaFree(other), cudaSuccess);
}

TEST_F(Capture, LetsOtherThreadsAndRelaxedOnesAllocate) {
  begin();
  EMULATED_CUDA_LAUNCH(add, 1, 1, 0, a, memory, 1);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] {
    void* more = nullptr;
    elsewhere = cudaMalloc(&more, 16);
    cudaFree(more);
  }).join();
  EXPECT_EQ(elsewhere, cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 16), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
}

TEST_F(Capture, OfAllThreadsForbidsThemAll) {
  begin(cudaStreamCaptureModeGlobal);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] {
    void* more = nullptr;
    elsewhere = cudaMalloc(&more, 16);
  }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureUnsupported);
  expect_invalidated();
}

TEST_F(Capture, WantsEveryStreamBack) {
  begin();
  ASSERT_EQ(cudaEventRecord(fork, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
  EMULATED_CUDA_LAUNCH(add, 1, 1, 0, b, memory, 1);
  expect_invalidated(cudaErrorStreamCaptureUnjoined);
}

TEST_F(Capture, TakesNoWorkFromOutside) {
  ASSERT_EQ(cudaEventRecord(fork, b), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a, fork, 0), cudaErrorStreamCaptureIsolation);
  expect_invalidated();
}

TEST_F(Capture, EndsInItsOwnThreadAndStream) {
  begin();
  cudaGraph_t graph = nullptr;
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = cudaStreamEndCapture(a, &graph); }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureWrongThread);
  ASSERT_EQ(cudaEventRecord(fork, a), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  expect_invalidated();
}

TEST_F(Capture, EventsOfItTellNothing) {
  begin();
  ASSERT_EQ(cudaEventRecord(fork, a), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(fork), cudaErrorCapturedEvent);
  expect_invalidated();
}

}  // namespace
