// Dropout: masks that depend on seed, step, layer, sample and place alone.
#include "runtime/nn/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "tests/support/tape_device.h"

namespace dtrain {
namespace {

class DropoutTest : public testing::Test {
 protected:
  Tensor index(std::initializer_list<std::int64_t> values) {
    return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device_);
  }
  std::vector<float> mask(Dropout& dropout, const Dims& shape) {
    return dropout(Tensor::ones(shape, device_)).to_vector<float>();
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
  std::shared_ptr<DropoutKey> key_ = std::make_shared<DropoutKey>(42, device_);
};

TEST_F(DropoutTest, KeepsItsShareAndTheMean) {
  Dropout dropout(0.25, key_);
  const auto values = mask(dropout, {100, 401});
  const auto kept = std::count(values.begin(), values.end(), static_cast<float>(1 / 0.75));
  EXPECT_EQ(kept + std::count(values.begin(), values.end(), 0.0F), 40100);
  EXPECT_NEAR(static_cast<double>(kept) / 40100, 0.75, 0.011);  // five standard errors
}

TEST_F(DropoutTest, IsTheIdentityInEvaluation) {
  Dropout dropout(0.5, key_), none(0, key_), all(1, key_);
  const Tensor x = Tensor::ones({4, 5}, device_);
  EXPECT_EQ(none(x).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(all(x).to_vector<float>(), Tensor::zeros_like(x).to_vector<float>());
  dropout.eval();
  EXPECT_TRUE(dropout(x).shares_storage(x));
  EXPECT_THROW(Dropout(1.5, key_), UsageError);
  EXPECT_THROW(Dropout(0.5, nullptr), UsageError);
}

TEST_F(DropoutTest, SeedStepAndLayerEachMakeAnotherMask) {
  const auto other_seed = std::make_shared<DropoutKey>(43, device_);
  Dropout first(0.5, key_), second(0.5, key_), other(0.5, other_seed);
  std::set<std::vector<float>> masks;
  for (const std::int64_t step : {0, 1, 1 << 30}) {
    key_->set_step(step);
    other_seed->set_step(step);
    for (Dropout* dropout : {&first, &second, &other}) masks.insert(mask(*dropout, {4, 30}));
  }
  EXPECT_EQ(masks.size(), 9U);
  key_->set_step(1);
  EXPECT_TRUE(masks.contains(mask(first, {4, 30})));  // again
  EXPECT_EQ(mask(first, {4, 30}), mask(first, {4, 30}));
}

// What two workers compute is what one computes, whatever their shares.
TEST_F(DropoutTest, MasksGoBySample) {
  Dropout dropout(0.5, key_);
  key_->set_step(7);
  key_->set_rows(index({5, 3, 9, 4}));
  const Tensor whole = dropout(Tensor::ones({4, 2, 11}, device_));
  key_->set_rows(index({9, 5}));
  const Tensor part = dropout(Tensor::ones({2, 2, 11}, device_));
  EXPECT_EQ(part.select(0, 0).to_vector<float>(), whole.select(0, 2).to_vector<float>());
  EXPECT_EQ(part.select(0, 1).to_vector<float>(), whole.select(0, 0).to_vector<float>());
  // Several rows a sample, as where heads or tokens were folded into the batch.
  const Tensor folded = dropout(Tensor::ones({4, 11}, device_));
  EXPECT_EQ(folded.to_vector<float>(), part.to_vector<float>());
  EXPECT_THROW(dropout(Tensor::ones({3, 2}, device_)), UsageError);
  EXPECT_THROW(key_->set_rows(Tensor::ones({3}, device_)), UsageError);
}

TEST_F(DropoutTest, OfChannelsDropsWholeOnes) {
  Dropout2d dropout(0.5, key_);
  key_->set_step(3);
  key_->set_rows(index({4, 9}));
  const Tensor y = dropout(Tensor::ones({2, 40, 3, 5}, device_));
  const auto least = amin(y, {2, 3}).to_vector<float>(), most = amax(y, {2, 3}).to_vector<float>();
  EXPECT_EQ(least, most);
  EXPECT_EQ(std::set<float>(least.begin(), least.end()), (std::set<float>{0, 2}));
  key_->set_rows(index({9}));
  const Tensor part = dropout(Tensor::ones({1, 40, 7}, device_));
  EXPECT_EQ(part.select(2, 0).select(0, 0).to_vector<float>(),
            y.select(3, 0).select(2, 0).select(0, 1).to_vector<float>());
  dropout.eval();
  EXPECT_TRUE(dropout(y).shares_storage(y));
  dropout.train();
  EXPECT_THROW(dropout(Tensor::ones({3}, device_)), UsageError);
}

TEST_F(DropoutTest, OfPathsDropsWholeSamples) {
  DropPath path(0.25, key_);
  key_->set_step(3);
  const Tensor y = path(Tensor::ones({400, 2, 3}, device_));
  const auto least = amin(y, {1, 2}).to_vector<float>(), most = amax(y, {1, 2}).to_vector<float>();
  EXPECT_EQ(least, most);
  const auto kept = std::count(least.begin(), least.end(), static_cast<float>(1 / 0.75));
  EXPECT_EQ(kept + std::count(least.begin(), least.end(), 0.0F), 400);
  EXPECT_NEAR(static_cast<double>(kept) / 400, 0.75, 0.11);  // five standard errors
  key_->set_rows(index({7, 300}));
  EXPECT_EQ(path(Tensor::ones({2, 1}, device_)).flatten().to_vector<float>(),
            (std::vector<float>{least[7], least[300]}));
}

// Ranks that divide each sample's sequence drop what one that has all of it drops, also where a part begins
// in the middle of a draw of four.
TEST_F(DropoutTest, APartOfASampleHasItsPartOfTheMask) {
  constexpr std::int64_t kLength = 10;
  constexpr int kParts = 2;
  for (const std::int64_t width : {1, 3, 8}) {
    // Each rank builds a network of its own, so the layer has the same number everywhere.
    const auto masked = [&](std::int64_t length, int part) {
      const auto key = std::make_shared<DropoutKey>(42, device_);
      Dropout dropout(0.5, key, part);
      key->set_step(7);
      key->set_rows(index({5, 3, 9}));
      return dropout(Tensor::ones({3, length, width}, device_));
    };
    const Tensor whole = masked(kLength, 0);
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t length = kLength / kParts;
      EXPECT_EQ(masked(length, part).to_vector<float>(),
                whole.slice(1, part * length, (part + 1) * length).to_vector<float>())
          << "part " << part << " of rows of " << kLength * width;
    }
  }
  EXPECT_THROW(Dropout(0.5, key_, -1), UsageError);
}

TEST_F(DropoutTest, RowsComeToTheDeviceOfTheLayers) {
  const auto other = make_device("cpu:1");
  DropoutKey key(1, other);
  key.set_step(3);
  key.set_rows(index({4, 2}));
  EXPECT_EQ(key.step().shared_device(), other);
  EXPECT_EQ(key.rows().shared_device(), other);
  EXPECT_EQ(key.rows().to_vector<std::int64_t>(), (std::vector<std::int64_t>{4, 2}));
}

TEST_F(DropoutTest, WithoutStepsItCountsItsPasses) {
  Dropout one(0.5, key_), again(0.5, std::make_shared<DropoutKey>(42, device_));
  const auto first = mask(one, {2, 40}), second = mask(one, {2, 40});
  EXPECT_NE(first, second);
  EXPECT_EQ(mask(again, {2, 40}), first);
  EXPECT_EQ(mask(again, {2, 40}), second);
}

TEST_F(DropoutTest, GradientHasTheMask) {
  Dropout dropout(0.5, key_);
  Tensor x = Tensor::ones({3, 7}, device_);
  x.set_requires_grad(true);
  const Tensor y = dropout(x);
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());
}

TEST_F(DropoutTest, RecomputedPassesKeepTheirMasks) {
  for (const bool steps : {false, true}) {
    const auto key = std::make_shared<DropoutKey>(1, device_);
    if (steps) key->set_step(3);
    const auto dropout = std::make_shared<Dropout>(0.5, key);
    const auto inner = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{dropout, dropout});
    Sequential net({inner, std::make_shared<Dropout>(0.5, key)});
    inner->set_recompute();
    net.set_recompute();
    for (int pass = 0; pass < 2; ++pass) {
      Tensor x = Tensor::ones({3, 50}, device_), other = Tensor::ones({3, 50}, device_);
      x.set_requires_grad(true);
      other.set_requires_grad(true);
      const Tensor y = net(x);
      const Tensor between = net(other);  // another pass before this one's backward
      sum(y).backward();
      EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());
      sum(between).backward();
      EXPECT_EQ(other.grad().to_vector<float>(), between.to_vector<float>());
    }
  }
}

TEST_F(DropoutTest, ARecomputedFunctionNeedsTheStep) {
  Dropout dropout(0.5, key_);
  Tensor x = Tensor::ones({3, 50}, device_);
  x.set_requires_grad(true);
  const auto function = [&](const Tensor& in) { return dropout(in); };
  EXPECT_THROW(sum(recomputed(function, x, {})).backward(), UsageError);
  key_->set_step(1);
  const Tensor y = recomputed(function, x, {});
  x.zero_grad();
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());
}

// A recorded pass reads step and rows when it runs.
TEST(RecordedDropout, HasNewMasksEachTime) {
  const auto tape = std::make_shared<test::TapeDevice>();
  const auto cpu = make_device("cpu");
  for (const bool steps : {true, false}) {
    const auto key = std::make_shared<DropoutKey>(5, tape), plain_key = std::make_shared<DropoutKey>(5, cpu);
    Dropout dropout(0.5, key), plain(0.5, plain_key);
    const Tensor x = Tensor::ones({2, 30}, tape), ones = Tensor::ones({2, 30}, cpu);
    const auto next = [&](std::int64_t step) {
      if (!steps) return;
      key->set_step(step);
      plain_key->set_step(step);
    };
    next(0);
    EXPECT_EQ(dropout(x).to_vector<float>(), plain(ones).to_vector<float>());  // warms up
    Tensor y;
    const auto graph = tape->record([&] { y = dropout(x); });
    std::set<std::vector<float>> masks;
    for (std::int64_t step = 1; step < 4; ++step) {
      next(step);
      graph->launch(tape->compute_stream());
      EXPECT_EQ(y.to_vector<float>(), plain(ones).to_vector<float>()) << step;
      masks.insert(y.to_vector<float>());
    }
    EXPECT_EQ(masks.size(), 3U);
  }
}

}  // namespace
}  // namespace dtrain
