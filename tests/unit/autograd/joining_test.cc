// cat, stack, split, chunk, unbind: values, gradients of both orders, and the tape with several results.
#include <gtest/gtest.h>

#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain {
namespace {

using test::cpu;
using test::random_f64;

Tensor counting(const Dims& shape) {
  return Tensor::arange(shape.product(), cpu(), DType::f64).reshape(shape);
}

TEST(Joining, PutsOneBehindTheOther) {
  const Tensor a = counting({2, 1}), b = counting({2, 2}).transpose(0, 1);
  EXPECT_EQ(cat({a, b}, -1).to_vector<double>(), (std::vector<double>{0, 0, 2, 1, 1, 3}));
  EXPECT_EQ(cat({a, b, a}, 1).shape(), (Dims{2, 4}));
  EXPECT_EQ(stack({a, a}).shape(), (Dims{2, 2, 1}));
  EXPECT_EQ(stack({a, a}, -1).to_vector<double>(), (std::vector<double>{0, 0, 1, 1}));
  EXPECT_THROW(cat(Tensors{}), UsageError);
  EXPECT_THROW(cat({a, b}, 0), UsageError);
  EXPECT_THROW(cat({a, a.to(DType::f32)}), UsageError);
  EXPECT_THROW(stack({a, b}), UsageError);
}

TEST(Joining, TakesApartAsPyTorchDoes) {
  const Tensor x = counting({7, 2});
  const auto extents = [](const Tensors& parts) {
    std::vector<std::int64_t> sizes;
    for (const Tensor& part : parts) sizes.push_back(part.size(0));
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(extents(split(x, 3)), (Sizes{3, 3, 1}));
  EXPECT_EQ(extents(chunk(x, 3)), (Sizes{3, 3, 1}));
  EXPECT_EQ(extents(chunk(x, 4)), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(extents(chunk(x, 5)), (Sizes{2, 2, 2, 1}));  // four parts do
  EXPECT_EQ(extents(chunk(counting({0, 2}), 3)), (Sizes{0, 0, 0}));
  EXPECT_EQ(extents(split(x, Sizes{1, 0, 6})), (Sizes{1, 0, 6}));
  EXPECT_EQ(unbind(x).size(), 7U);
  EXPECT_EQ(unbind(x, 1)[1].to_vector<double>(), (std::vector<double>{1, 3, 5, 7, 9, 11, 13}));
  EXPECT_TRUE(split(x, 3)[1].shares_storage(x));
  EXPECT_THROW(split(x, Sizes{3, 3}), UsageError);
  EXPECT_THROW(split(x, Sizes{8, -1}), UsageError);
  EXPECT_THROW(split(x, 0), UsageError);
  EXPECT_THROW(chunk(x, 0), UsageError);
}

/// A tensor that is joined twice, and parts that are used unequally.
TEST(Joining, GradientsAreDifferences) {
  using Inputs = std::vector<Tensor>;
  const Inputs inputs = {random_f64({2, 3}, 1), random_f64({2, 2}, 2)};
  const std::vector<test::Function> functions = {
      [](const Inputs& x) {
        return square(cat({x[0], x[1], x[0]}, 1));
      },
      [](const Inputs& x) { return chunk(x[0] * x[0], 2, 1)[0]; },  // the other has no gradient
      [](const Inputs& x) {
        const Tensors rows = unbind(x[0]);
        return rows[0] * rows[1] * rows[1];
      },
  };
  for (const auto& f : functions) {
    test::expect_gradients(f, inputs);
    test::expect_second_gradients(f, inputs);
  }
}

/// Sum and product, with the calls of their backward counted.
Tensors sum_and_product(const Tensor& a, const Tensor& b, int& calls) {
  Tensors results;
  {
    const NoGrad no_grad;
    results = {a + b, a * b};
  }
  const Tensors inputs{a, b};
  return record_several("both", results, inputs, [&calls, a, b](const Tensors& grads, GradSink& sink) {
    ++calls;
    for (int i = 0; i < 2; ++i) {
      Tensor total = Tensor::zeros(a.shape(), a.shared_device(), a.dtype());
      if (grads[0].defined()) total = total + grads[0];
      if (grads[1].defined()) total = total + grads[1] * (i == 0 ? b : a);
      sink.deliver(i, total);
    }
  });
}

TEST(RecordSeveral, RunsBackwardOnceAPass) {
  int calls = 0;
  const auto f = [&calls](const std::vector<Tensor>& x) {
    const Tensors both = sum_and_product(x[0], x[1], calls);
    return both[0] * both[1];
  };
  test::expect_gradients(f, {random_f64({3}, 1), random_f64({3}, 2)});
  test::expect_second_gradients(f, {random_f64({3}, 1), random_f64({3}, 2)});
  Tensor a = random_f64({3}, 3), b = random_f64({3}, 4);
  a.set_requires_grad(true);
  calls = 0;
  const Tensors both = sum_and_product(a, b, calls);
  sum(both[0] * both[1]).backward({.retain_graph = true});
  EXPECT_EQ(calls, 1);
  const auto all = a.grad().to_vector<double>();
  a.zero_grad();
  sum(both[1]).backward({.retain_graph = true});  // nothing is left of the pass before
  EXPECT_EQ(a.grad().to_vector<double>(), b.to_vector<double>());
  a.zero_grad();
  sum(both[0] * both[1]).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), all);
  EXPECT_EQ(calls, 3);
}

TEST(RecordSeveral, AFailedPassLeavesNothing) {
  int calls = 0;
  Tensor a = random_f64({3}, 3), b = random_f64({3}, 4);
  a.set_requires_grad(true);
  const Tensors both = sum_and_product(a, b, calls);
  Tensor doubled = both[0] * 2.0, squared = square(both[1]);
  const Tensor total = sum(doubled) + sum(squared);
  {
    const NoGrad no_grad;
    both[1].detach().mark_modified();  // square's backward fails, after that of the product has run
  }
  EXPECT_THROW(total.backward({.retain_graph = true}), UsageError);
  sum(both[1]).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), b.to_vector<double>());
}

}  // namespace
}  // namespace dtrain
