// Recorded work of the CUDA device: what runs when, which memory it uses, and what cannot be recorded.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tensor.h"

namespace dtrain::test {
namespace {

class GpuGraphs : public testing::Test {
 protected:
  // Kernels are loaded when they are first launched; a trainer's first steps see to that, here this does.
  void SetUp() override {
    Tensor warm = random({4});
    warm.add_in_place(mul(add(warm, 1.0), 3.0));
    gpu->compute_stream().synchronize();
  }
  Tensor random(const Dims& shape) { return Tensor::rand(shape, generator, gpu, -1.0F, 1.0F); }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{7};
};

TEST_F(GpuGraphs, RunWhenLaunchedOnWhatIsThereThen) {
  const Tensor in = Tensor::full({1000}, 1.0, gpu), out = Tensor::zeros({1000}, gpu);
  const auto graph = gpu->record([&] { out.detach().add_in_place(mul(add(in, 1.0), 3.0)); });
  EXPECT_EQ(out.to_vector<float>()[999], 0);  // recorded, not run
  graph->launch(gpu->compute_stream());
  EXPECT_EQ(out.to_vector<float>()[999], 6);
  in.detach().fill(2.0);
  graph->launch(gpu->compute_stream());
  EXPECT_EQ(out.to_vector<float>()[999], 15);
}

TEST_F(GpuGraphs, KeepTheirMemoryToThemselves) {
  const Tensor in = random({300, 300}), expected = Tensor::zeros({300, 300}, gpu),
               out = Tensor::zeros({300, 300}, gpu);
  Tensor weight = Tensor::full({300, 300}, 0.01, gpu);
  const auto work = [&](const Tensor& to) {
    to.detach().copy_from(matmul(matmul(in, weight), matmul(in, weight)));
  };
  work(expected);
  Tensor survivor;
  const auto graph = gpu->record([&] {
    work(out);
    survivor = add(in, 1.0);
  });
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> others;  // take whatever the pool has, and overwrite it
    for (int i = 0; i < 8; ++i) others.push_back(Tensor::full({300, 300}, 1e30, gpu));
    graph->launch(gpu->compute_stream());
    EXPECT_EQ(out.to_vector<float>(), expected.to_vector<float>());
    for (const Tensor& other : others) EXPECT_EQ(other.to_vector<float>()[89999], 1e30F);
  }
  EXPECT_EQ(survivor.to_vector<float>()[5], in.to_vector<float>()[5] + 1);
}

TEST_F(GpuGraphs, OutlivedByTensorsMadeInThem) {
  const Tensor in = Tensor::ones({64}, gpu);
  Tensor survivor;
  auto graph = gpu->record([&] { survivor = add(in, 1.0); });
  graph->launch(gpu->compute_stream());
  graph.reset();
  EXPECT_EQ(survivor.to_vector<float>()[63], 2);
  const std::size_t before = gpu->allocated_bytes();
  survivor = Tensor();
  EXPECT_LT(gpu->allocated_bytes(), before);
}

TEST_F(GpuGraphs, ForkToOtherStreamsAndJoinAgain) {
  const Tensor from = Tensor::zeros({1 << 20}, gpu), to = Tensor::zeros({1 << 20}, gpu);
  const auto side = gpu->make_stream();
  const auto forked = gpu->make_event(), joined = gpu->make_event();
  const auto graph = gpu->record([&] {
    from.detach().add_in_place(Tensor::ones({1 << 20}, gpu));
    forked->record(gpu->compute_stream());
    forked->make_wait(*side);
    gpu->copy(to.view().data, from.view().data, sizeof(float) << 20, CopyKind::device_to_device, *side);
    joined->record(*side);
    joined->make_wait(gpu->compute_stream());
    to.detach().add_in_place(from);
  });
  for (int round = 1; round <= 3; ++round) {
    graph->launch(gpu->compute_stream());
    EXPECT_EQ(to.to_vector<float>()[12345], 2 * round);
  }
}

// A step's optimizer reads the learning rate and its count from memory, so that they change between launches.
TEST_F(GpuGraphs, OptimizerStepsChangeBetweenLaunches) {
  for (const bool adam : {false, true}) {
    const Tensor grad = random({5000}), changes = Tensor::zeros({2}, gpu, DType::f64);
    std::vector<std::vector<float>> results;
    for (const bool recorded : {false, true}) {
      const Tensor param = Tensor::ones({5000}, gpu), first = Tensor::zeros({5000}, gpu),
                   second = Tensor::zeros({5000}, gpu);
      const OptimizerSlot slots[] = {{param.view(), grad.view(), first.view(), second.view()}};
      const auto step = [&](double lr, std::int64_t number, StepChanges from) {
        if (adam) return gpu->kernels().adamw(slots, {.lr = lr, .step = number, .changes = from});
        gpu->kernels().sgd(slots, {.lr = lr, .momentum = 0.9, .changes = from});
      };
      step(0.1, 1, {});  // the table of parameters is made outside of a recording
      const auto graph = recorded ? gpu->record([&] { step(0.1, 2, {changes.view()}); }) : nullptr;
      for (int i = 0; i < 3; ++i) {
        const double lr = 0.1 / (i + 1);
        if (!recorded) {
          step(lr, 2 + i, {});
          continue;
        }
        changes.select(0, 0).fill(lr);
        changes.select(0, 1).fill(i);
        graph->launch(gpu->compute_stream());
      }
      results.push_back(param.to_vector<float>());
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) ASSERT_NEAR(results[0][i], results[1][i], 1e-6) << i;
  }
}

// What was recorded of pageable memory would be read again when somebody else has it.
TEST_F(GpuGraphs, RefuseCopiesOfPageableMemory) {
  const Tensor on_gpu = Tensor::zeros({256}, gpu);
  std::vector<float> host(256, 3.0F);
  Stream& stream = gpu->compute_stream();
  const auto copy_in = [&](const void* from) {
    gpu->copy(on_gpu.view().data, from, 256 * sizeof(float), CopyKind::host_to_device, stream);
  };
  const auto copy_out = [&](void* to) {
    gpu->copy(to, on_gpu.view().data, 256 * sizeof(float), CopyKind::device_to_host, stream);
  };
  try {
    gpu->record([&] { copy_in(host.data()); });
    FAIL() << "recorded";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("pageable"), std::string::npos) << error.what();
  }
  EXPECT_THROW(gpu->record([&] { copy_out(host.data()); }), DeviceError);
  auto* const pinned = static_cast<float*>(gpu->allocate_pinned(256 * sizeof(float)));
  const auto graph = gpu->record([&] { copy_in(pinned); });
  for (const float value : {1.0F, 2.0F}) {
    std::fill_n(pinned, 256, value);
    graph->launch(stream);
    EXPECT_EQ(on_gpu.to_vector<float>()[255], value);  // waits, so the memory may change
  }
  gpu->deallocate_pinned(pinned, 256 * sizeof(float));
  copy_in(host.data());  // as it comes it is taken at once
  EXPECT_EQ(on_gpu.to_vector<float>()[255], 3);
}

TEST_F(GpuGraphs, FailuresLeaveTheDeviceUsable) {
  const Tensor one = Tensor::ones({4}, gpu);
  EXPECT_THROW(gpu->record([&] { static_cast<void>(one.item()); }), Error);              // not one element
  EXPECT_THROW(gpu->record([&] { gpu->compute_stream().synchronize(); }), DeviceError);  // the host waits
  EXPECT_EQ(add(one, 1.0).to_vector<float>()[3], 2);
  const auto graph = gpu->record([&] { one.detach().fill(5.0); });
  graph->launch(gpu->compute_stream());
  EXPECT_EQ(one.to_vector<float>()[3], 5);
}

}  // namespace
}  // namespace dtrain::test
