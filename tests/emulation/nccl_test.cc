// NCCL on the emulated machine, between threads of one process: results, groups, calls that do not block, and
// peers that do not come.
#include <gtest/gtest.h>

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

struct Rank {
  int index = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* memory = nullptr;
  static constexpr std::size_t kCount = 300000;  // several chunks

  void fill(float value) { std::fill_n(memory, kCount, value); }
  void finish() { ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }
};

// Two ranks: tests elsewhere lose the other GPUs.
void run_ranks(bool blocking, const std::function<void(Rank&)>& work) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      ASSERT_EQ(cudaSetDevice(index), cudaSuccess);
      Rank rank;
      rank.index = index;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking ? 1 : 0;
      const ncclResult_t began = ncclCommInitRankConfig(&rank.comm, 2, id, index, &config);
      ASSERT_TRUE(began == ncclSuccess || (!blocking && began == ncclInProgress));
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) ASSERT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
      ASSERT_EQ(state, ncclSuccess);
      ASSERT_EQ(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), cudaSuccess);
      ASSERT_EQ(cudaMallocManaged(&rank.memory, 2 * Rank::kCount * sizeof(float)), cudaSuccess);
      work(rank);
      EXPECT_EQ(cudaFree(rank.memory), cudaSuccess);
      if (rank.comm != nullptr) {
        EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
      }
      EXPECT_EQ(cudaStreamDestroy(rank.stream), cudaSuccess);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Nccl, ReducesAndGathers) {
  run_ranks(true, [](Rank& rank) {
    rank.fill(static_cast<float>(rank.index + 1));
    ASSERT_EQ(
        ncclAllReduce(rank.memory, rank.memory, Rank::kCount, ncclFloat32, ncclSum, rank.comm, rank.stream),
        ncclSuccess);
    rank.finish();
    for (const std::size_t at : {std::size_t{0}, Rank::kCount - 1}) EXPECT_EQ(rank.memory[at], 3.0F);
    rank.fill(static_cast<float>(rank.index + 1));
    ASSERT_EQ(ncclAllGather(rank.memory, rank.memory + 1000, 500, ncclFloat32, rank.comm, rank.stream),
              ncclSuccess);
    rank.finish();
    EXPECT_EQ(rank.memory[1000], 1.0F);
    EXPECT_EQ(rank.memory[1999], 2.0F);
    for (std::size_t i = 0; i < 200; ++i) rank.memory[i] = static_cast<float>(i);
    ASSERT_EQ(
        ncclReduceScatter(rank.memory, rank.memory + 1000, 100, ncclFloat32, ncclAvg, rank.comm, rank.stream),
        ncclSuccess);
    ASSERT_EQ(
        ncclBroadcast(rank.memory + 1000, rank.memory + 2000, 100, ncclFloat32, 1, rank.comm, rank.stream),
        ncclSuccess);
    rank.finish();
    EXPECT_EQ(rank.memory[1000], 100.0F * static_cast<float>(rank.index));
    EXPECT_EQ(rank.memory[2099], 199.0F);
  });
}

TEST(Nccl, MessagesOfAGroupMoveTogether) {
  run_ranks(true, [](Rank& rank) {
    rank.fill(static_cast<float>(rank.index + 1));
    const int other = 1 - rank.index;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(rank.memory, Rank::kCount, ncclFloat32, other, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(rank.memory + Rank::kCount, Rank::kCount, ncclFloat32, other, rank.comm, rank.stream),
              ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    rank.finish();
    EXPECT_EQ(rank.memory[2 * Rank::kCount - 1], static_cast<float>(other + 1));
  });
}

TEST(Nccl, WithoutBlockingTheFirstCallConnects) {
  std::atomic<bool> has_called = false;
  run_ranks(false, [&](Rank& rank) {
    // The second is not there before the first has called.
    while (rank.index == 1 && !has_called) std::this_thread::sleep_for(1ms);
    rank.fill(1);
    const ncclResult_t called =
        ncclAllReduce(rank.memory, rank.memory, 10, ncclFloat32, ncclSum, rank.comm, rank.stream);
    if (rank.index == 0) {
      has_called = true;
      EXPECT_EQ(called, ncclInProgress);
    }
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ASSERT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
    ASSERT_EQ(state, ncclSuccess);
    rank.finish();
    EXPECT_EQ(rank.memory[0], 2.0F);
  });
}

TEST(Nccl, AbortTakesACollectiveOffTheGpu) {
  run_ranks(true, [](Rank& rank) {
    rank.fill(1);
    ASSERT_EQ(ncclAllReduce(rank.memory, rank.memory, 10, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    rank.finish();
    if (rank.index == 1) return;
    ASSERT_EQ(ncclAllReduce(rank.memory, rank.memory, 10, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
    EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
    rank.finish();
  });
}

TEST(Nccl, TwoRanksOnOneGpuAreRefused) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclResult_t results[2] = {};
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
      ncclComm_t comm = nullptr;
      results[index] = ncclCommInitRank(&comm, 2, id, index);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("Duplicate GPU"), std::string::npos);
      ncclCommAbort(comm);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(results[0], ncclInvalidUsage);
  EXPECT_EQ(results[1], ncclInvalidUsage);
}

TEST(Nccl, CollectivesCanBeRecorded) {
  run_ranks(true, [](Rank& rank) {
    rank.fill(1);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(ncclAllReduce(rank.memory, rank.memory, 10, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    ASSERT_EQ(cudaStreamEndCapture(rank.stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(cudaGraphLaunch(executable, rank.stream), cudaSuccess);
    rank.finish();
    EXPECT_EQ(rank.memory[9], 16.0F);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

}  // namespace
