// Collectives on tensors: what they compute, and their gradients against differences over all ranks.
#include "parallel/functional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "collectives/thread_ranks.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

constexpr double kStep = 1e-4, kTolerance = 1e-6;
const Deadline kNever = Deadline::never();

Tensor random(const Dims& shape, std::uint64_t seed, const std::shared_ptr<Device>& device) {
  Generator generator(seed);
  return Tensor::randn(shape, generator, device, DType::f64);
}

/// Whether ranks continue alike (one of them has the whole loss) or apart (the loss is the sum of theirs).
enum class After { alike, apart };

using Function = std::function<Tensor(const Tensor& x, const RankGroup& group)>;

double value_of(const Tensor& loss, After after, const RankGroup& group) {
  double value = loss.item();
  if (after == After::alike) return value;
  group.communicator.all_reduce({&value, 1, DType::f64}, ReduceOp::sum, "loss")->wait(kNever);
  return value;
}

/// The gradient of the loss by every rank's x, against central differences: each element of each rank's x
/// moves alone, all ranks compute. `equal_inputs`: all ranks have one x, and it moves on all of them.
void expect_gradients(int ranks, const Dims& shape, After after, bool equal_inputs, const Function& f) {
  NullLog log;
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(20)};
    const auto own = static_cast<std::uint64_t>(communicator.rank());
    Tensor x = random(shape, equal_inputs ? 7 : 7 + own, device);
    x.set_requires_grad(true);
    const auto loss_of = [&](const Tensor& input) {
      const Tensor y = f(input, group);
      return sum(mul(y, random(y.shape(), after == After::alike ? 50 : 50 + own, device)));
    };
    loss_of(x).backward();
    const auto got = x.grad().to_vector<double>();
    const int movers = equal_inputs ? 1 : ranks;
    for (int mover = 0; mover < movers; ++mover) {
      for (std::size_t i = 0; i < got.size(); ++i) {
        double values[2];
        for (const int side : {0, 1}) {
          const NoGrad no_grad;
          auto moved = x.to_vector<double>();
          if (equal_inputs || mover == communicator.rank()) moved[i] += side == 0 ? -kStep : kStep;
          values[side] = value_of(loss_of(Tensor::from_data(moved, shape, device)), after, group);
        }
        if (!equal_inputs && mover != communicator.rank()) continue;
        ASSERT_NEAR(got[i], (values[1] - values[0]) / (2 * kStep), kTolerance)
            << "rank " << communicator.rank() << ", element " << i;
      }
    }
  });
}

class Functional : public testing::TestWithParam<int> {};

TEST_P(Functional, GradientsAreThoseOfDifferences) {
  const int n = GetParam();
  expect_gradients(n, {2, 3}, After::alike, false, [](const Tensor& x, const RankGroup& g) {
    return mul(all_reduce(mul(x, x), g, "sum"), 0.5);
  });
  expect_gradients(n, {2, 3}, After::apart, true, [](const Tensor& x, const RankGroup& g) {
    return mul(copy_to_ranks(mul(x, x), g, "copy"), 1.0 + g.communicator.rank());
  });
  for (const int dim : {0, 1, -1}) {
    expect_gradients(n, {2, 3, 2}, After::apart, false, [dim](const Tensor& x, const RankGroup& g) {
      return all_gather(mul(x, x), dim, g, "gather");
    });
    expect_gradients(n, {2, 3, 2}, After::alike, false, [dim](const Tensor& x, const RankGroup& g) {
      return gather_alike(mul(x, x), dim, g, "gather");
    });
    expect_gradients(
        n, {2 * n, 2 * n, 2 * n}, After::apart, false,
        [dim](const Tensor& x, const RankGroup& g) { return reduce_scatter(mul(x, x), dim, g, "scatter"); });
    expect_gradients(n, {n, n, n}, After::apart, true, [dim](const Tensor& x, const RankGroup& g) {
      return own_part(mul(x, x), dim, g, "cut");
    });
  }
}

TEST_P(Functional, OfPartsAndWholes) {
  const int n = GetParam();
  NullLog log;
  run_thread_ranks(n, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(20)};
    const Tensor whole = random({4, 2 * n, 3}, 5, device);
    for (const int dim : {1}) {
      const Tensor part = own_part(whole, dim, group, "part");
      EXPECT_EQ(part.shape(), Dims({4, 2, 3}));
      EXPECT_EQ(all_gather(part, dim, group, "whole").to_vector<double>(), whole.to_vector<double>());
      // What is not row-major is taken as it is meant.
      const Tensor turned = gather_alike(part.transpose(0, 2), dim, group, "turned");
      EXPECT_EQ(turned.transpose(0, 2).to_vector<double>().size(), whole.to_vector<double>().size());
      EXPECT_EQ(turned.to_vector<double>(), whole.transpose(0, 2).to_vector<double>());
    }
    const Tensor total = all_reduce(whole, group, "total");
    const auto once = whole.to_vector<double>(), sums = total.to_vector<double>();
    EXPECT_EQ(whole.to_vector<double>(), random({4, 2 * n, 3}, 5, device).to_vector<double>())
        << "not in place";
    for (std::size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(sums[i], n * once[i], 1e-12);
    EXPECT_EQ(reduce_scatter(whole, 1, group, "rs").to_vector<double>(),
              own_part(total, 1, group, "own").to_vector<double>());
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Functional, testing::Values(1, 2, 3));

// y = w2 · relu(w1 · x), w1 on rank 0 and w2 on rank 1: the gradients of one process, bit for bit.
TEST(FunctionalMessages, GradientsComeBack) {
  NullLog log;
  const auto one = make_device("cpu");
  Tensor x = random({3, 4}, 1, one), w1 = random({4, 5}, 2, one), w2 = random({5, 2}, 3, one);
  for (Tensor* tensor : {&x, &w1, &w2}) tensor->set_requires_grad(true);
  sum(matmul(relu(matmul(x, w1)), w2)).backward();
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(20)};
    if (communicator.rank() == 0) {
      Tensor input = random({3, 4}, 1, device), weight = random({4, 5}, 2, device);
      input.set_requires_grad(true);
      weight.set_requires_grad(true);
      const Tensor h = relu(matmul(input, weight));
      send(h, 1, group, "activations").backward();
      send(input.detach(), 1, group, "constant").backward();
      EXPECT_EQ(weight.grad().to_vector<double>(), w1.grad().to_vector<double>());
      EXPECT_EQ(input.grad().to_vector<double>(), x.grad().to_vector<double>());
    } else {
      Tensor weight = random({5, 2}, 3, device);
      weight.set_requires_grad(true);
      const Tensor h = receive(Tensor::empty({3, 5}, device, DType::f64), 0, group, "activations");
      sum(matmul(h, weight)).backward();
      EXPECT_EQ(weight.grad().to_vector<double>(), w2.grad().to_vector<double>());
      sum(receive(Tensor::empty({3, 4}, device, DType::f64), 0, group, "constant")).backward();
      const NoGrad no_grad;
    }
    communicator.barrier("end")->wait(kNever);
  });
}

TEST(FunctionalErrors, AreNamed) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    const auto device = make_device("cpu");
    const RankGroup group{communicator, std::chrono::seconds(20)};
    Tensor x = random({3, 4}, 1, device);
    EXPECT_THAT(test::message_of([&] { reduce_scatter(x, 0, group, "rs"); }),
                HasSubstr("a multiple of 2 ranks"));
    EXPECT_THAT(test::message_of([&] { own_part(x, 2, group, "own"); }),
                HasSubstr("expected a dimension of"));
    x.set_requires_grad(true);
    const Tensor y = sum(all_reduce(mul(x, x), group, "sum"));
    EXPECT_THAT(test::message_of([&] {
                  gradients(y, {&x, 1}, {}, {.create_graph = true});
                }),
                HasSubstr("gradients of its gradient are not available"));
    communicator.barrier("end")->wait(kNever);
  });
}

}  // namespace
}  // namespace dtrain
