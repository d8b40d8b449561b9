// Two GPUs of one process: copies between them, and updates of parameters on both.
#include <gtest/gtest.h>

#include "collectives/factory.h"
#include "parallel/placed/replicated_module.h"
#include "parallel/sync/bucket_gradient.h"
#include "parallel/sync/data_parallel.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/nn/layers.h"
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

/// A parameter on each GPU.
class Apart final : public Module {
 public:
  explicit Apart(const Devices& gpus) {
    here = add_parameter("here", Tensor::ones({5}, gpus[0]));
    there = add_parameter("there", Tensor::ones({7}, gpus[1]));
  }
  Tensor forward(const Tensor&) override { return {}; }
  void learn(const Tensor& parameter, double factor) { mul(sum(parameter), factor).backward(); }
  Tensor here, there;
};

/// Adds buckets up as one rank does, and so has them shared.
class Alone final : public CommHook {
 public:
  std::unique_ptr<Work> begin(Communicator& communicator, const GradBucket& bucket) override {
    bucket.device->kernels().affine(flat(bucket.span), 2.0, 0.0, flat(bucket.span));
    return communicator.all_reduce(bucket.span, ReduceOp::sum, bucket.label);
  }

 private:
  static View flat(const MemorySpan& span) {
    return {span.data, span.dtype, {static_cast<std::int64_t>(span.count)}, {1}};
  }
};

// The exchange doubles what it is given: gradients of the second GPU come to their bucket and back, once a
// step, also those of passes before the last one; what was not used has none.
TEST_F(SeveralGpus, ShareGradientsInBucketsOnOne) {
  NullLog log;
  const auto self = make_communicator(Backend::self, {}, log);
  Apart network(gpus);
  DataParallel parallel(*self, network, Deadline::never(), {.exchange = std::make_shared<Alone>()});
  const auto finished = [&] {
    parallel.finish(Deadline::never());
    return std::pair(network.here.grad().to_vector<float>()[4], network.there.grad().to_vector<float>()[6]);
  };
  network.learn(network.there, 3);
  network.learn(network.here, 1);
  EXPECT_EQ(finished(), std::pair(2.0F, 6.0F));

  network.zero_grad();
  {
    const auto no_sync = parallel.no_sync();
    network.learn(network.there, 4);
  }
  network.learn(network.here, 1);
  EXPECT_EQ(finished(), std::pair(2.0F, 8.0F));

  network.zero_grad();
  network.learn(network.here, 1);
  parallel.finish(Deadline::never());
  EXPECT_EQ(network.here.grad().to_vector<float>()[4], 2.0F);
  EXPECT_FALSE(network.there.grad().defined());
}

// Nobody to share with: no copies, and what was not used has no gradient.
TEST_F(SeveralGpus, LeaveGradientsOfOneWorkerWhereTheyAre) {
  NullLog log;
  const auto self = make_communicator(Backend::self, {}, log);
  Apart network(gpus);
  DataParallel parallel(*self, network, Deadline::never(), {.device = gpus[0]});
  EXPECT_EQ(parallel.reducer().slot_count(), 2) << "one parameter, and which were used";
  network.learn(network.here, 1);
  parallel.finish(Deadline::never());
  EXPECT_FALSE(network.there.grad().defined());
}

// As virtual workers have them: a pass's gradient goes to other memory than the one before.
TEST_F(SeveralGpus, BringGradientsToPlacesThatMove) {
  Apart network(gpus);
  const Tensor places[] = {Tensor::zeros({7}, gpus[0]), Tensor::zeros({7}, gpus[0])};
  BucketGradient gradient(network.there, gpus[0]);
  for (const int pass : {0, 1}) {
    network.zero_grad();
    gradient.bind_view(places[pass].view(), nullptr);
    network.learn(network.there, 3 + pass);
    gradient.copy_in();
  }
  for (const int pass : {0, 1})
    EXPECT_EQ(places[pass].to_vector<float>(), std::vector<float>(7, static_cast<float>(3 + pass)));
  Tensor(places[1]).fill(12);
  network.zero_grad();
  gradient.copy_out();
  gradient.assign();
  EXPECT_EQ(network.there.grad().shared_device(), gpus[1]);
  EXPECT_EQ(network.there.grad().to_vector<float>(), std::vector<float>(7, 12.0F));
}

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

/// On the device that is the default when it is made.
class Small final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return out_(relu(norm_(hidden_(x)))); }

 private:
  Linear& hidden_ = add_module<Linear>("hidden", 3, 8);
  BatchNorm1d& norm_ = add_module<BatchNorm1d>("norm", 8);
  Linear& out_ = add_module<Linear>("out", 8, 2);
};

// Made on the host and moved, its gradients too; an optimizer that has no state follows, one that has says
// so.
TEST_F(SeveralGpus, ModulesMoveBetweenThem) {
  manual_seed(3);
  Small net;
  Generator generator(4);
  const Tensor x = Tensor::randn({6, 3}, generator, default_device());
  AdamW optimizer(net.named_parameters(), {.lr = 0.1});
  sum(square(net(x))).backward();
  const std::vector<float> gradient = net.named_parameters()[0].second.grad().to_vector<float>();
  net.to(gpus[0]);
  EXPECT_EQ(net.named_parameters()[0].second.grad().to_vector<float>(), gradient);
  optimizer.step();
  optimizer.zero_grad();
  net.eval();
  const std::vector<float> before = net(x.to(gpus[0])).to_vector<float>();
  net.to(gpus[1]);
  EXPECT_EQ(net(x.to(gpus[1])).to_vector<float>(), before);
  sum(net(x.to(gpus[1]))).backward();
  try {
    optimizer.step();
    FAIL() << "state on another GPU was used";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("hidden.weight"), std::string::npos) << error.what();
  }
  AdamW follower(net.named_parameters(), {.lr = 0.1});
  follower.load_state(optimizer.named_state());
  follower.step();
  EXPECT_EQ(follower.named_state()[0].second.shared_device(), gpus[1]);
}

/// Without batch norm, whose statistics are those of a device's rows.
class Plain final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return out_(relu(hidden_(x))); }

 private:
  Linear& hidden_ = add_module<Linear>("hidden", 3, 8);
  Linear& out_ = add_module<Linear>("out", 8, 2);
};

// torch.nn.DataParallel of one network; the default generator draws as if there were no replicas.
TEST_F(SeveralGpus, ReplicateOneNetwork) {
  Generator generator(4);
  const Tensor x = Tensor::randn({7, 3}, generator, gpus[0]);
  const auto trained = [&](bool replicated) {
    manual_seed(3);
    const auto net = std::make_shared<Plain>();
    std::shared_ptr<Module> used = net;
    if (replicated) {
      used = std::make_shared<ReplicatedModule>(net, gpus, [] { return std::make_shared<Plain>(); });
    } else {
      net->to(gpus[0]);
    }
    Sgd optimizer(used->named_parameters(), {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      mean(square((*used)(x))).backward();
      optimizer.step();
    }
    std::vector<float> numbers;
    for (const auto& [name, tensor] : net->state_dict()) {
      const std::vector<float> values = tensor.to_vector<float>();
      numbers.insert(numbers.end(), values.begin(), values.end());
    }
    numbers.push_back(static_cast<float>(default_generator().next32() % 1000));
    return numbers;
  };
  const std::vector<float> one = trained(false), two = trained(true);
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-5) << "number " << i;
  const auto net = std::make_shared<Plain>();
  EXPECT_THROW(ReplicatedModule(net, Devices{gpus[0], gpus[0]}, [net] { return net; }), UsageError);
}

}  // namespace
}  // namespace dtrain::test
