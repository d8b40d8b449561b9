// The operations of classic networks beside PyTorch's (core.py).
#include <gtest/gtest.h>

#include "tests/parity/operations/parity_table.h"

namespace dtrain {
namespace {

using test::Inputs;

test::Family operations() {
  const auto conv = [](const Conv2dGeometry& geometry, Activation activation = Activation::none) {
    return [=](const Inputs& in) { return conv2d(in[0], in[1], in[2], geometry, activation); };
  };
  const auto pool = [](PoolKind kind) {
    return [kind](const Inputs& in) { return pool2d(in[0], {kind, 3, 3, 2, 2, 1, 1}); };
  };
  return {
      {"conv2d", conv({})},
      {"conv2d stride 2 padding 1", conv({2, 2, 1, 1})},
      {"conv2d dilation 2 groups 2", conv({1, 1, 0, 0, 2, 2, 2})},
      {"conv2d relu", conv({}, Activation::relu)},
      {"conv2d relu max_pool2d",
       [](const Inputs& in) { return conv2d_relu_pool2d(in[0], in[1], in[2], {}, {PoolKind::max}); }},
      {"max_pool2d 3 stride 2 padding 1", pool(PoolKind::max)},
      {"avg_pool2d 3 stride 2 padding 1", pool(PoolKind::avg)},
      {"linear", [](const Inputs& in) { return linear(in[0], in[1], in[2]); }},
      {"linear relu", [](const Inputs& in) { return linear(in[0], in[1], in[2], Activation::relu); }},
      {"matmul broadcast", [](const Inputs& in) { return matmul(in[0], in[1]); }},
      {"gelu", [](const Inputs& in) { return gelu(in[0]); }},
      {"sigmoid", [](const Inputs& in) { return sigmoid(in[0]); }},
      {"tanh", [](const Inputs& in) { return tanh(in[0]); }},
      {"div broadcast", [](const Inputs& in) { return in[0] / (in[1] + 3.0); }},
      {"log_softmax", [](const Inputs& in) { return log_softmax(in[0]); }},
      {"softmax", [](const Inputs& in) { return softmax(in[0]); }},
      {"cross_entropy", [](const Inputs& in) { return cross_entropy(in[0], in[1]); }},
      {"mse_loss", [](const Inputs& in) { return mse_loss(in[0], in[1]); }},
      {"mean and amax",
       [](const Inputs& in) {
         return mean(in[0], {0, 2}) * sum(amax(in[0], {0}), {-1});
       }},
      {"index_select", [](const Inputs& in) { return in[0].index_select(0, in[1]); }},
  };
}

TEST(OperationParity, Core) { test::expect_parity("core", operations()); }

}  // namespace
}  // namespace dtrain
