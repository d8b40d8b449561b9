// Cooperative groups, atomic functions, and kernels that are launched by their address or are nodes of a
// graph that was built and not recorded: what public CUDA programs use and dtrain's kernels do not.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace {

namespace cg = cooperative_groups;

template <unsigned kSize>
__global__ void sum_tiles(const int* values, int* sums) {
  const auto tile = cg::tiled_partition<kSize>(cg::this_thread_block());
  const int sum = cg::reduce(tile, values[cg::this_thread_block().thread_rank()], cg::plus<int>());
  if (tile.thread_rank() == 0) sums[tile.meta_group_rank()] = sum;
}

template <unsigned kSize>
void expect_sums() {
  constexpr int kThreads = 256;
  int *values = nullptr, *sums = nullptr;
  ASSERT_EQ(cudaMallocManaged(&values, kThreads * sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&sums, kThreads * sizeof(int)), cudaSuccess);
  for (int i = 0; i < kThreads; ++i) values[i] = i * i;
  EMULATED_CUDA_LAUNCH((sum_tiles<kSize>), 1, kThreads, 0, nullptr, values, sums);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int tile = 0; tile < kThreads / static_cast<int>(kSize); ++tile) {
    const int* const first = values + tile * static_cast<int>(kSize);
    EXPECT_EQ(sums[tile], std::accumulate(first, first + kSize, 0)) << "tile " << tile << " of " << kSize;
  }
  EXPECT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_EQ(cudaFree(sums), cudaSuccess);
}

TEST(Groups, TilesOfAnySizeAddUp) {
  expect_sums<1>();
  expect_sums<8>();
  expect_sums<32>();
  expect_sums<64>();
  expect_sums<256>();
}

// Each half of the block meets a different number of times: a barrier of the block would never end.
__global__ void meet_apart(int* rounds) {
  const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
  const int times = tile.meta_group_rank() == 0 ? 3 : 5;
  for (int i = 0; i < times; ++i) {
    if (tile.thread_rank() == 0) ++rounds[tile.meta_group_rank()];
    tile.sync();
  }
}

TEST(Groups, TilesMeetIndependently) {
  int* rounds = nullptr;
  ASSERT_EQ(cudaMallocManaged(&rounds, 2 * sizeof(int)), cudaSuccess);
  rounds[0] = rounds[1] = 0;
  EMULATED_CUDA_LAUNCH(meet_apart, 1, 128, 0, nullptr, rounds);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(rounds[0], 3);
  EXPECT_EQ(rounds[1], 5);
  EXPECT_EQ(cudaFree(rounds), cudaSuccess);
}

__global__ void turn_pairs(uint4* values) {
  values[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFU, values[threadIdx.x], 1);
}

TEST(Groups, ValuesOfSixteenBytesAreExchanged) {
  uint4* values = nullptr;
  ASSERT_EQ(cudaMallocManaged(&values, 32 * sizeof(uint4)), cudaSuccess);
  for (unsigned i = 0; i < 32; ++i) values[i] = {i, 100 + i, 200 + i, 300 + i};
  EMULATED_CUDA_LAUNCH(turn_pairs, 1, 32, 0, nullptr, values);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (unsigned i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i].x, i ^ 1U);
    EXPECT_EQ(values[i].w, 300 + (i ^ 1U));
  }
  EXPECT_EQ(cudaFree(values), cudaSuccess);
}

__global__ void count_around(unsigned* at) {
  atomicInc(&at[0], 6);
  atomicDec(&at[1], 9);
  atomicAnd(&at[2], ~(1U << threadIdx.x));
  atomicOr(&at[3], 1U << threadIdx.x);
  atomicXor(&at[4], 3U);
}

TEST(Atomics, CountAroundAndSetBits) {
  unsigned* at = nullptr;
  ASSERT_EQ(cudaMallocManaged(&at, 5 * sizeof(unsigned)), cudaSuccess);
  std::fill_n(at, 5, 0U);
  at[2] = 0xFFFFU;
  EMULATED_CUDA_LAUNCH(count_around, 1, 9, 0, nullptr, at);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(at[0], 2U);  // 9 steps around 0 … 6
  EXPECT_EQ(at[1], 1U);  // 0, then down from 9
  EXPECT_EQ(at[2], 0xFE00U);
  EXPECT_EQ(at[3], 0x1FFU);
  EXPECT_EQ(at[4], 3U);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

__global__ void scale(float* values, int count, float by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] *= by;
}
__global__ void nobody_knows(int*) {}
const bool known = ::emulation::register_kernel(scale, "scale");

TEST(Registry, KernelsAreLaunchedByTheirAddress) {
  ASSERT_TRUE(known);
  float* values = nullptr;
  ASSERT_EQ(cudaMallocManaged(&values, 40 * sizeof(float)), cudaSuccess);
  std::fill_n(values, 40, 1.5F);
  int count = 39;
  float by = 4;
  std::array<void*, 3> arguments{&values, &count, &by};
  ASSERT_EQ(
      cudaLaunchKernel(reinterpret_cast<const void*>(scale), dim3(2), dim3(32), arguments.data(), 0, nullptr),
      cudaSuccess);
  by = 0;  // the launch has its own copy
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(values[38], 6.0F);
  EXPECT_EQ(values[39], 1.5F);
  void* one = &values;
  EXPECT_EQ(cudaLaunchKernel(reinterpret_cast<const void*>(nobody_knows), dim3(1), dim3(1), &one, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  static_cast<void>(cudaGetLastError());
  EXPECT_EQ(cudaFree(values), cudaSuccess);
}

void append(void* text) { static_cast<std::string*>(text)->push_back('x'); }

TEST(BuiltGraphs, RunTheirNodesInOrderAndCloneThem) {
  constexpr std::size_t kCount = 64;
  std::vector<float> host(kCount, 3), result(kCount, 0);
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, kCount * sizeof(float)), cudaSuccess);
  cudaGraph_t graph = nullptr, clone = nullptr;
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  std::array<cudaGraphNode_t, 5> nodes{};
  cudaMemsetParams zero{};
  zero.dst = device;
  zero.elementSize = 4;
  zero.width = kCount;
  zero.height = 1;
  ASSERT_EQ(cudaGraphAddMemsetNode(&nodes[0], graph, nullptr, 0, &zero), cudaSuccess);
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(host.data(), kCount * 2, kCount * 2, 1);  // half of them
  in.dstPtr = make_cudaPitchedPtr(device, kCount * 2, kCount * 2, 1);
  in.extent = make_cudaExtent(kCount * 2, 1, 1);
  in.kind = cudaMemcpyHostToDevice;
  ASSERT_EQ(cudaGraphAddMemcpyNode(&nodes[1], graph, &nodes[0], 1, &in), cudaSuccess);
  int count = static_cast<int>(kCount);
  float by = 2;
  std::array<void*, 3> arguments{&device, &count, &by};
  cudaKernelNodeParams kernel{};
  kernel.func = reinterpret_cast<void*>(scale);
  kernel.gridDim = dim3(2);
  kernel.blockDim = dim3(32);
  kernel.kernelParams = arguments.data();
  ASSERT_EQ(cudaGraphAddKernelNode(&nodes[2], graph, &nodes[1], 1, &kernel), cudaSuccess);
  ASSERT_EQ(cudaGraphAddMemcpyNode1D(&nodes[3], graph, &nodes[2], 1, result.data(), device,
                                     kCount * sizeof(float), cudaMemcpyDeviceToHost),
            cudaSuccess);
  std::string calls;
  cudaHostNodeParams called{append, &calls};
  ASSERT_EQ(cudaGraphAddHostNode(&nodes[4], graph, &nodes[3], 1, &called), cudaSuccess);
  ASSERT_EQ(cudaGraphClone(&clone, graph), cudaSuccess);
  std::size_t known_nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(clone, nullptr, &known_nodes), cudaSuccess);
  EXPECT_EQ(known_nodes, nodes.size());
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (const cudaGraph_t each : {graph, clone}) {
    std::fill(result.begin(), result.end(), -1.0F);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, each, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(result[0], 6.0F);
    EXPECT_EQ(result[kCount / 2], 0.0F);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(each), cudaSuccess);
  }
  EXPECT_EQ(calls, "xx");
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

}  // namespace
