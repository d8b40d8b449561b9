// What data parallelism builds on: gradients in given memory, and when each of them is announced.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Floats = std::vector<float>;

class Leaf : public testing::Test {
 protected:
  Tensor parameter(const Dims& shape) {
    Tensor tensor = Tensor::rand(shape, generator_, device_);
    tensor.set_requires_grad(true);
    return tensor;
  }
  /// Part of the bucket from element `offset` on.
  Tensor slice_of_bucket(std::int64_t offset, const Dims& shape) {
    return Tensor::borrow({bucket_.view().as<float>() + offset, DType::f32, shape, contiguous_strides(shape)},
                          device_, nullptr);
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{1};
  Tensor bucket_ = Tensor::full({100}, 77, device_);
};

TEST_F(Leaf, GradientLivesInGivenMemory) {
  Tensor x = Tensor::ones({2}, device_);
  x.set_requires_grad(true);
  x.set_grad_storage(slice_of_bucket(10, {2}));
  sum(x * 3.0).backward();  // overwrites
  EXPECT_EQ(x.grad().view().data, bucket_.view().as<float>() + 10);
  EXPECT_EQ(bucket_.slice(0, 9, 13).to_vector<float>(), (Floats{77, 3, 3, 77}));
  sum(x * 4.0).backward();  // adds
  EXPECT_EQ(bucket_.slice(0, 9, 13).to_vector<float>(), (Floats{77, 7, 7, 77}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  sum(x * 5.0).backward();  // overwrites again
  EXPECT_EQ(bucket_.slice(0, 9, 13).to_vector<float>(), (Floats{77, 5, 5, 77}));
  x.set_grad_storage({});
  sum(x * 1.0).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{6, 6}));
  EXPECT_EQ(bucket_.slice(0, 9, 13).to_vector<float>(), (Floats{77, 5, 5, 77}));
}

TEST_F(Leaf, ExistingGradientMovesIntoGivenMemory) {
  Tensor x = Tensor::ones({2}, device_);
  x.set_requires_grad(true);
  sum(x * 3.0).backward();
  x.set_grad_storage(slice_of_bucket(0, {2}));
  EXPECT_EQ(bucket_.slice(0, 0, 3).to_vector<float>(), (Floats{3, 3, 77}));
  EXPECT_THROW(x.set_grad_storage(slice_of_bucket(0, {3})), UsageError);
  EXPECT_THROW((x * 1.0).set_grad_storage(slice_of_bucket(0, {2})), UsageError);
}

TEST_F(Leaf, SetGradCopiesIntoGivenMemory) {
  Tensor x = parameter({2});
  x.set_grad(Tensor::ones({2}, device_));
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{1, 1}));
  x.set_grad_storage(slice_of_bucket(5, {2}));
  x.set_grad(Tensor::full({2}, 9, device_));
  EXPECT_EQ(bucket_.slice(0, 4, 8).to_vector<float>(), (Floats{77, 9, 9, 77}));
  EXPECT_THROW(x.set_grad(Tensor::ones({3}, device_)), UsageError);
}

/// A small network whose weights' gradients are written straight into the bucket.
struct Net {
  Tensor w1, b1, w2, b2;
  Tensor operator()(const Tensor& x) const {
    const Tensor features = max_pool2d(conv2d(x, w1, b1, {}, Activation::relu), 2);
    return linear(flatten(features), w2, b2);
  }
};

TEST_F(Leaf, WeightGradientsGoStraightToGivenMemory) {
  const Net plain{parameter({2, 1, 3, 3}), parameter({2}), parameter({3, 8}), parameter({3})};
  const Net bucketed{plain.w1.detach().clone(), plain.b1.detach().clone(), plain.w2.detach().clone(),
                     plain.b2.detach().clone()};
  std::int64_t offset = 0;
  for (Tensor leaf : {bucketed.w1, bucketed.b1, bucketed.w2, bucketed.b2}) {
    leaf.set_requires_grad(true);
    leaf.set_grad_storage(slice_of_bucket(offset, leaf.shape()));
    offset += leaf.numel();
  }
  const Tensor x = Tensor::rand({4, 1, 6, 6}, generator_, device_);
  for (int pass = 0; pass < 2; ++pass) {  // the second pass accumulates
    sum(square(plain(x))).backward();
    sum(square(bucketed(x))).backward();
  }
  EXPECT_EQ(plain.w1.grad().to_vector<float>(), bucketed.w1.grad().to_vector<float>());
  EXPECT_EQ(plain.b1.grad().to_vector<float>(), bucketed.b1.grad().to_vector<float>());
  EXPECT_EQ(plain.w2.grad().to_vector<float>(), bucketed.w2.grad().to_vector<float>());
  EXPECT_EQ(plain.b2.grad().to_vector<float>(), bucketed.b2.grad().to_vector<float>());
  EXPECT_EQ(bucketed.b2.grad().view().data, bucket_.view().as<float>() + offset - 3);
  EXPECT_EQ(bucket_.select(0, offset).item(), 77);
}

TEST_F(Leaf, IsAnnouncedOnceInReverseOrderOfUse) {
  Net net{parameter({2, 1, 3, 3}), parameter({2}), parameter({3, 8}), parameter({3})};
  std::vector<std::string> order;
  const auto caller = std::this_thread::get_id();
  const auto announce = [&](Tensor& leaf, const std::string& name) {
    leaf.on_grad_ready([&order, &leaf, name, caller] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_TRUE(leaf.grad().defined());
      order.push_back(name);
    });
  };
  announce(net.w1, "w1");
  announce(net.b1, "b1");
  announce(net.w2, "w2");
  announce(net.b2, "b2");
  const Tensor x = Tensor::rand({4, 1, 6, 6}, generator_, device_);
  const std::vector<std::string> expected{"w2", "b2", "w1", "b1"};
  for (int pass = 0; pass < 2; ++pass) {
    order.clear();
    sum(square(net(x))).backward();
    EXPECT_EQ(order, expected);
  }
}

TEST_F(Leaf, UsedTwiceIsAnnouncedWhenFinal) {
  Tensor w = parameter({3, 3});
  int calls = 0;
  double at_call = 0;
  w.on_grad_ready([&] {
    ++calls;
    at_call = sum(w.grad()).item();
  });
  const Tensor x = Tensor::ones({1, 3}, device_);
  sum(linear(linear(x, w, {}), w, {})).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(at_call, sum(w.grad()).item());
}

TEST_F(Leaf, UnusedIsNotAnnounced) {
  Tensor used = parameter({2}), unused = parameter({2});
  int calls = 0;
  unused.on_grad_ready([&calls] { ++calls; });
  sum(used * 2.0).backward();
  EXPECT_EQ(calls, 0);
}

TEST_F(Leaf, WhatTheAnnouncementThrowsLeavesBackward) {
  Tensor x = parameter({2});
  x.on_grad_ready([] { throw UsageError("from the hook"); });
  EXPECT_THROW(sum(x * 2.0).backward(), UsageError);
  x.on_grad_ready({});
  sum(x * 2.0).backward();
}

TEST_F(Leaf, FrozenParametersCostNothing) {
  Net net{parameter({2, 1, 3, 3}), parameter({2}), parameter({3, 8}), parameter({3})};
  net.w1.set_requires_grad(false);
  net.w2.set_requires_grad(false);
  sum(net(Tensor::rand({4, 1, 6, 6}, generator_, device_))).backward();
  EXPECT_FALSE(net.w1.grad().defined());
  EXPECT_FALSE(net.w2.grad().defined());
  EXPECT_TRUE(net.b1.grad().defined());
  EXPECT_TRUE(net.b2.grad().defined());
}

TEST_F(Leaf, CreateGraphCannotUseGivenMemory) {
  Tensor x = parameter({2});
  x.set_grad_storage(slice_of_bucket(0, {2}));
  EXPECT_THROW(sum(x * x).backward({.create_graph = true}), UsageError);
}

TEST_F(Leaf, OnlyFloatingLeavesHaveGradients) {
  Tensor labels = Tensor::zeros({2}, device_, DType::i64);
  EXPECT_THROW(labels.set_requires_grad(true), UsageError);
  Tensor x = parameter({2});
  Tensor y = x * 2.0;
  EXPECT_FALSE(y.is_leaf());
  EXPECT_TRUE(x.is_leaf());
  EXPECT_THROW(y.set_requires_grad(false), UsageError);
  EXPECT_THROW(y.on_grad_ready([] {}), UsageError);
}

}  // namespace
}  // namespace dtrain
