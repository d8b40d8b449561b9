// Noise: numbers that depend on seed, step, place, sample and element alone; and plain generators, which a
// training step refuses.
#include "runtime/nn/noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "runtime/autograd/fork.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/draw_guard.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;
using Floats = std::vector<float>;

class NoiseTest : public testing::Test {
 protected:
  Tensor index(std::initializer_list<std::int64_t> values) {
    return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device_);
  }
  Tensor like(const Dims& shape) { return Tensor::zeros(shape, device_); }
  static std::pair<double, double> moments(const Floats& values) {
    const auto count = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double square = 0;
    for (const float value : values) square += (value - mean) * (value - mean);
    return {mean, std::sqrt(square / count)};
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
  std::shared_ptr<DropoutKey> key_ = std::make_shared<DropoutKey>(42, device_);
};

// 40,000 numbers: within five standard errors.
TEST_F(NoiseTest, HasTheMomentsOfItsDistribution) {
  Noise noise(key_);
  key_->set_step(1);
  const auto [normal_mean, normal_deviation] = moments(noise.randn_like(like({100, 400})).to_vector<float>());
  EXPECT_NEAR(normal_mean, 0, 0.025);
  EXPECT_NEAR(normal_deviation, 1, 0.018);
  const Floats uniform = noise.rand_like(like({100, 400})).to_vector<float>();
  const auto [uniform_mean, uniform_deviation] = moments(uniform);
  EXPECT_NEAR(uniform_mean, 0.5, 0.0073);
  EXPECT_NEAR(uniform_deviation, std::sqrt(1.0 / 12), 0.0047);
  EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), 0);
  EXPECT_LT(*std::max_element(uniform.begin(), uniform.end()), 1);
  EXPECT_NEAR(moments(noise.bernoulli_like(like({100, 400}), 0.3).to_vector<float>()).first, 0.3, 0.0115);
  EXPECT_EQ(noise.bernoulli_like(like({2, 2}), 1).to_vector<float>(), Floats(4, 1));
  EXPECT_THROW(noise.bernoulli_like(like({2}), 1.5), UsageError);
}

TEST_F(NoiseTest, SeedStepPlaceAndKindEachMakeOthers) {
  const auto other_seed = std::make_shared<DropoutKey>(43, device_);
  Noise first(key_), second(key_), other(other_seed);
  std::set<Floats> found;
  for (const std::int64_t step : {0, 1}) {
    key_->set_step(step);
    other_seed->set_step(step);
    for (Noise* noise : {&first, &second, &other}) {
      found.insert(noise->randn_like(like({3, 5})).to_vector<float>());
      found.insert(noise->rand_like(like({3, 5})).to_vector<float>());
    }
  }
  EXPECT_EQ(found.size(), 12U);
  EXPECT_TRUE(found.contains(first.randn_like(like({3, 5})).to_vector<float>())) << "again";
}

// What two workers draw is what one draws, whatever their shares and the cut of a sample into parts.
TEST_F(NoiseTest, GoesBySampleAndElement) {
  const auto drawn = [&](std::initializer_list<std::int64_t> rows, std::int64_t length, int part) {
    const auto key = std::make_shared<DropoutKey>(42, device_);
    Noise noise(key, 1, part);
    key->set_step(7);
    key->set_rows(index(rows));
    return noise.randn_like(like({static_cast<std::int64_t>(rows.size()), length, 3}));
  };
  const Tensor whole = drawn({5, 3, 9}, 10, 0);
  EXPECT_EQ(drawn({9}, 10, 0).to_vector<float>(), whole.slice(0, 2, 3).to_vector<float>());
  for (const int part : {0, 1})
    EXPECT_EQ(drawn({5, 3, 9}, 5, part).to_vector<float>(),
              whole.slice(1, 5 * part, 5 * part + 5).to_vector<float>());
  key_->set_step(0);
  key_->set_rows(index({1, 2}));
  EXPECT_THROW(Noise(key_).rand_like(like({3, 2})), UsageError);
}

TEST_F(NoiseTest, IsAddedInTrainingAlone) {
  Noise noise(key_, 0.5);
  const Tensor x = Tensor::ones({4, 3}, device_);
  key_->set_step(2);
  EXPECT_EQ(noise(x).to_vector<float>(), add(x, mul(noise.randn_like(x), 0.5)).to_vector<float>());
  noise.eval();
  EXPECT_TRUE(noise(x).shares_storage(x));
  EXPECT_THROW(Noise(key_, -1), UsageError);
  EXPECT_THROW(Noise(nullptr), UsageError);
}

// Without a step that was set each call has other numbers, and the second run those of the first.
TEST_F(NoiseTest, IsTheSameWhereAModuleIsComputedAgain) {
  class Net final : public Module {
   public:
    Net(Generator& numbers, const std::shared_ptr<DropoutKey>& key, const std::shared_ptr<Device>& device) {
      linear_ = add_module("linear", std::make_shared<Linear>(3, 3, numbers, device));
      noise_ = add_module("noise", std::make_shared<Noise>(key));
    }
    Tensor forward(const Tensor& x) override { return mul((*linear_)(x), noise_->randn_like(x)); }

   private:
    std::shared_ptr<Linear> linear_;
    std::shared_ptr<Noise> noise_;
  };
  const auto gradient = [&](bool again) {
    Generator numbers(1);
    Net net(numbers, std::make_shared<DropoutKey>(42, device_), device_);
    net.set_recompute(again);
    const Tensor x = Tensor::ones({4, 3}, device_);
    net(x);  // counted
    sum(square(net(x))).backward();
    return net.named_parameters()[0].second.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

// With or without an engine: the second run's numbers would be others, and gradients those of another mask.
TEST_F(NoiseTest, APlainGeneratorIsRefusedInWhatIsRecomputed) {
  Generator generator(1);
  const Tensor x = Tensor::ones({4, 3}, device_);
  const auto noisy = [&](const Tensor& in) { return mul(in, Tensor::rand({4, 3}, generator, device_)); };
  recomputed(noisy, x, {});  // nothing is recorded: computed once
  Tensor leaf = x.detach();
  leaf.set_requires_grad(true);
  EXPECT_THROW(recomputed(noisy, leaf, {}), UsageError);
}

TEST_F(NoiseTest, APlainGeneratorIsRefusedInsideAStep) {
  Generator generator(1);
  const auto draw = [&] { Tensor::randn({20}, generator, device_); };
  const Floats before = [copy = generator, this]() mutable {
    return Tensor::randn({20}, copy, device_).to_vector<float>();
  }();
  {
    const DrawGuard step;
    EXPECT_THAT(test::message_of(draw), HasSubstr("Use Noise"));
    EXPECT_THAT(test::message_of([&] { Tensor::rand({2}, generator, device_); }), HasSubstr("uniform()"));
    EXPECT_THROW(generator.permutation(4), UsageError);
    EXPECT_THROW(generator.next32(), UsageError);
    EXPECT_THROW(generator.next64(), UsageError);
    EXPECT_THROW(fork([&] { return Tensor::rand({2}, generator, device_); }).wait(), UsageError)
        << "threads of the step too";
    const DrawGuard allowed(false);
    Generator other(2);
    Tensor::rand({2}, other, device_);
  }
  EXPECT_EQ(Tensor::randn({20}, generator, device_).to_vector<float>(), before) << "nothing was drawn";
}

}  // namespace
}  // namespace dtrain
