// Branches in threads of their own: the numbers of one thread, at the same time forwards and backwards.
#include "runtime/autograd/fork.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/thread_slot.h"
#include "runtime/tensor/defaults.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

/// Both sides must be here at the same time; gives up after a while.
class Rendezvous {
 public:
  bool meet() {
    std::unique_lock lock(mutex_);
    const int all = (here_++ / 2 + 1) * 2;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return here_ >= all; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
};

class ForkTest : public testing::Test {
 protected:
  Tensor leaf(const Dims& shape) {
    Tensor tensor = Tensor::randn(shape, generator_, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  /// As y = f(x), with a meeting of the two branches on the way there and back.
  Tensor meeting(const Tensor& x, Rendezvous& there, Rendezvous& back) {
    EXPECT_TRUE(there.meet());
    return record("meet", x.clone().detach(), {x}, [&back](Tensor grad, GradSink& sink) {
      EXPECT_TRUE(back.meet()) << "backward runs one branch after the other";
      sink.deliver(0, std::move(grad));
    });
  }
  Generator generator_{3};
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(ForkTest, BothWaysAtTheSameTimeAndTheSameBits) {
  Tensor x = leaf({5, 4}), left = leaf({4, 6}), right = leaf({4, 6}), shared = leaf({6});
  const auto other = make_device("cpu:1");
  std::vector<std::vector<float>> forked, plain;
  for (const bool in_threads : {true, false}) {
    Rendezvous there, back;
    const auto branch = [&](const Tensor& input, const Tensor& weight, bool meets) {
      Tensor h = relu(add(matmul(input, weight), shared));
      return meets ? meeting(h, there, back) : h;
    };
    const Tensor base = mul(x, x);
    Tensor joined;
    if (in_threads) {
      const Fork a = fork([&] { return branch(base, left, true); });
      const Fork b = fork([&] { return branch(base, right, true); });
      joined = mul(a.wait(), b.wait());
    } else {
      const Tensor a = branch(base, left, false);
      joined = mul(a, branch(base, right, false));
    }
    sum(joined).backward();
    for (Tensor* tensor : {&x, &left, &right, &shared}) {
      (in_threads ? forked : plain).push_back(tensor->grad().to_vector<float>());
      tensor->zero_grad();
    }
    (in_threads ? forked : plain).push_back(joined.to_vector<float>());
  }
  EXPECT_EQ(forked, plain);
}

TEST_F(ForkTest, WhatIsRecordedMeanwhileRunsMeanwhile) {
  Tensor x = leaf({3});
  Rendezvous there, back;
  const Fork branch = fork([&] { return meeting(mul(x, x), there, back); });
  const Tensor beside = meeting(add(x, x), there, back);
  sum(add(branch.wait(), beside)).backward();
  const auto value = x.to_vector<float>(), grad = x.grad().to_vector<float>();
  for (std::size_t i = 0; i < value.size(); ++i) EXPECT_FLOAT_EQ(grad[i], 2 * value[i] + 2);
}

TEST_F(ForkTest, BranchesOnDevicesOfTheirOwn) {
  const auto zero = make_device("cpu:0"), one = make_device("cpu:1");
  EXPECT_THAT(one->name(), HasSubstr("cpu:1"));
  EXPECT_EQ(one->index(), 1);
  Tensor x = Tensor::randn({8, 8}, generator_, zero), weight = Tensor::randn({8, 8}, generator_, one);
  x.set_requires_grad(true);
  weight.set_requires_grad(true);
  const Fork away = fork([&] { return matmul(x.to(one), weight).to(zero); });
  const Tensor home = matmul(x, x);
  sum(add(away.wait(), home)).backward();
  EXPECT_EQ(weight.grad().shared_device(), one);
  EXPECT_EQ(x.grad().shared_device(), zero);
  EXPECT_GT(one->allocated_bytes(), 0U);
  Tensor y = x.detach().clone(), same = weight.detach().to(zero);
  y.set_requires_grad(true);
  const Tensor first = matmul(y, same), second = matmul(y, y);  // in the order of the fork
  sum(add(first, second)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), y.grad().to_vector<float>());
}

TEST_F(ForkTest, SeveralResultsOfWhichSomeAreUsed) {
  Tensor x = leaf({4});
  const Fork branch = fork_all([&] { return Tensors{mul(x, x), x, x.detach(), add(x, x)}; });
  const Tensors& results = branch.wait_all();
  ASSERT_EQ(results.size(), 4U);
  EXPECT_FALSE(results[2].requires_grad());
  sum(add(results[0], results[1])).backward({.retain_graph = true});
  const auto value = x.to_vector<float>(), grad = x.grad().to_vector<float>();
  for (std::size_t i = 0; i < value.size(); ++i) EXPECT_FLOAT_EQ(grad[i], 2 * value[i] + 1);
  sum(results[0]).backward();
  EXPECT_FLOAT_EQ(x.grad().to_vector<float>()[1], 4 * value[1] + 1) << "a second pass adds";
  EXPECT_THAT(test::message_of([&] { branch.wait(); }), HasSubstr("4 results"));
  EXPECT_THAT(test::message_of([&] { sum(results[0]).backward(); }), HasSubstr("freed"));
}

TEST_F(ForkTest, ForksInForks) {
  Tensor x = leaf({4});
  const Fork outer = fork([&] {
    const Fork inner = fork([&] { return mul(x, x); });
    return mul(inner.wait(), x);
  });
  sum(outer.wait()).backward();
  const auto value = x.to_vector<float>(), grad = x.grad().to_vector<float>();
  for (std::size_t i = 0; i < value.size(); ++i) EXPECT_NEAR(grad[i], 3 * value[i] * value[i], 1e-5);
}

TEST_F(ForkTest, GradientsOfGradients) {
  Tensor x = leaf({3});
  const Fork branch = fork([&] { return mul(mul(x, x), x); });
  const Tensor y = sum(branch.wait());
  const Tensor first = gradients(y, {&x, 1}, {}, {.create_graph = true})[0];
  const Tensor second = gradients(sum(first), {&x, 1})[0];
  const auto value = x.to_vector<float>(), got = second.to_vector<float>();
  for (std::size_t i = 0; i < value.size(); ++i) EXPECT_NEAR(got[i], 6 * value[i], 1e-4);
}

TEST_F(ForkTest, CarriesGradModeAndAutocast) {
  Tensor x = leaf({2, 2});
  LowPrecisionWeights weights;
  {
    const NoGrad no_grad;
    EXPECT_FALSE(fork([&] { return mul(x, x); }).wait().requires_grad());
  }
  const Autocast autocast(Precision::bf16, weights);
  EXPECT_EQ(fork([&] { return matmul(x, x); }).wait().dtype(), DType::bf16);
  int slot = 0;
  parallel_invoke(
      [&](int i) {
        if (i == 1) slot = thread_slot();
      },
      2);
  EXPECT_GT(slot, 0);
  EXPECT_EQ(thread_slot(), 0);
}

// Threads of one's own: each computes on the default device as if it were alone.
TEST(Threads, ComputeSideBySideOnOneCpu) {
  const auto train = [](std::uint64_t seed) {
    Generator generator(seed);
    Tensor x = Tensor::empty({64, 96}, default_device());
    x.fill_normal(generator);
    Tensor w = Tensor::empty({96, 80}, default_device());
    w.fill_normal(generator, 0, 0.1);
    w.set_requires_grad(true);
    for (int step = 0; step < 200; ++step) {
      w.zero_grad();
      const Tensor loss = mean(square(gelu(matmul(x, w))));
      loss.backward();
      const NoGrad no_grad;
      w.copy_from(sub(w, mul(w.grad(), 0.1)));
    }
    return w.to_vector<float>();
  };
  std::vector<std::vector<float>> alone, together(3);
  for (std::uint64_t i = 0; i < 3; ++i) alone.push_back(train(i));
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { together[i] = train(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST_F(ForkTest, ErrorsComeOutOfWaitAndOfBackward) {
  Tensor x = leaf({2});
  const Fork fails = fork([&]() -> Tensor { throw UsageError("no such layer"); });
  EXPECT_THAT(test::message_of([&] { fails.wait(); }), HasSubstr("no such layer"));
  EXPECT_THAT(test::message_of([&] { fails.wait(); }), HasSubstr("no such layer")) << "again";
  const Fork branch = fork([&] {
    return record("fails", x.clone().detach(), {x},
                  [](const Tensor&, GradSink&) { throw UsageError("no gradient today"); });
  });
  const Tensor loss = sum(branch.wait());
  EXPECT_THAT(test::message_of([&] { loss.backward(); }), HasSubstr("no gradient today"));
  EXPECT_THAT(test::message_of([&] {
                parallel_invoke(
                    [](int i) {
                      if (i > 0) throw UsageError("thread " + std::to_string(i));
                    },
                    3);
              }),
              HasSubstr("thread 1"));
}

TEST_F(ForkTest, HooksRunInTheThreadOfBackward) {
  Tensor x = leaf({2}), storage = Tensor::zeros({2}, device_);
  x.set_grad_storage(storage);
  std::thread::id thread;
  int calls = 0;
  x.on_grad_ready([&] { thread = std::this_thread::get_id(), ++calls; });
  const Fork a = fork([&] { return mul(x, x); });
  const Fork b = fork([&] { return add(x, x); });
  sum(add(a.wait(), b.wait())).backward();
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_EQ(calls, 1) << "once, when all branches are through";
  EXPECT_TRUE(x.grad().shares_storage(storage));
}

}  // namespace
}  // namespace dtrain
