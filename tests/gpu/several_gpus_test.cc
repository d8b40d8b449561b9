// Two GPUs of one process: copies between them, and updates of parameters on both.
#include <gtest/gtest.h>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "tests/support/several_devices.h"

namespace dtrain::test {
namespace {

class SeveralGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() < 2) GTEST_SKIP() << "two GPUs needed";
    for (const char* name : {"cuda:0", "cuda:1"}) gpus.push_back(make_device(name));
  }
  Devices gpus;
};

// The host waits for nothing, and what was copied is given back at once: only the GPUs' own order is left.
TEST_F(SeveralGpus, OrderCopiesAmongThemselves) {
  Tensor x = Tensor::zeros({3000}, gpus[0]);
  for (int round = 0; round < 20; ++round) x = add(mul(x, 0.5).to(gpus[(round + 1) % 2]), 1.0);
  double expected = 0;
  for (int round = 0; round < 20; ++round) expected = expected * 0.5 + 1;
  for (const float value : x.to_vector<float>()) ASSERT_FLOAT_EQ(value, static_cast<float>(expected));

  const Tensor there = Tensor::zeros({3000}, gpus[1]);
  for (int round = 1; round <= 20; ++round) {
    there.detach().copy_across(Tensor::full({3000}, round, gpus[0]));
    x = there.to(gpus[0]);
  }
  for (const float value : x.to_vector<float>()) ASSERT_EQ(value, 20);
}

TEST_F(SeveralGpus, UpdateParametersOnBothWithTheBitsOfOne) { expect_the_bits_of_one(gpus, gpus[0]); }

TEST_F(SeveralGpus, AreNotRecordedTogether) {
  NamedTensors parameters;
  for (const auto& gpu : gpus) {
    parameters.emplace_back(gpu->name(), Tensor::ones({2}, gpu));
    parameters.back().second.set_requires_grad(true);
  }
  Sgd sgd(parameters, {.lr = 0.1});
  sgd.step();
  EXPECT_THROW(sgd.begin_recording(), UsageError);
}

}  // namespace
}  // namespace dtrain::test
