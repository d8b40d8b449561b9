// Batch norm of a part of a batch, by numbers worked out by hand: the other part is a peer that says what it
// has.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "runtime/autograd/gradients.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"

namespace dtrain {
namespace {

/// One peer of rank 1 whose moments and gradient sums are given.
class KnownPeer final : public BatchPeers {
 public:
  KnownPeer(std::vector<double> moments, std::vector<double> sums)
      : moments_(std::move(moments)), sums_(std::move(sums)) {}

  int size() const noexcept override { return 2; }
  void all_gather(const Tensor& mine, const Tensor& all) override {
    sent = mine.to_vector<double>();
    std::vector<double> rows = sent;
    rows.insert(rows.end(), moments_.begin(), moments_.end());
    Tensor(all).copy_from(Tensor::from_data(rows, all.shape(), all.shared_device()));
  }
  void add_up(const Tensor& values) override {
    sent = values.to_vector<double>();
    const NoGrad no_grad;
    Tensor(values).add_in_place(Tensor::from_data(sums_, values.shape(), values.shared_device()));
  }

  std::vector<double> sent;

 private:
  std::vector<double> moments_, sums_;
};

void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance) {
  const auto values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << i;
}

class BatchPeersTest : public testing::Test {
 protected:
  // Here 1, 2, 3; there 5, 9: mean 4, biased variance 8, unbiased 10. Gradients here 1, 0, 2; there 4, -2:
  // their sum is 5, that of their products with x - 4 is (-3 + 0 - 2) + (4 - 10) = -11.
  BatchPeersTest() {
    x.set_requires_grad(true);
    norm.synchronize(peer);
    norm.named_parameters()[0].second.detach().fill(3);  // weight
    norm.named_parameters()[1].second.detach().fill(7);  // bias
  }

  std::shared_ptr<Device> device = make_device("cpu");
  std::shared_ptr<KnownPeer> peer =
      std::make_shared<KnownPeer>(std::vector<double>{2, 7, 8}, std::vector<double>{2, 2, -6});
  BatchNorm2d norm{1, device, /*eps=*/0.0, /*momentum=*/0.25};
  Tensor x = Tensor::from_data(std::vector<float>{1, 2, 3}, {3, 1, 1, 1}, device);
  const double inv_std = 1 / std::sqrt(8.0);
};

TEST_F(BatchPeersTest, StatisticsAreThoseOfAllParts) {
  const Tensor y = norm(x);
  EXPECT_EQ(peer->sent, (std::vector<double>{3, 2, 2}));
  expect_near(y, {7 - 9 * inv_std, 7 - 6 * inv_std, 7 - 3 * inv_std}, 1e-6);
  expect_near(norm.named_buffers()[0].second, {0.25 * 4}, 1e-7);
  expect_near(norm.named_buffers()[1].second, {0.75 * 1 + 0.25 * 10}, 1e-7);
}

TEST_F(BatchPeersTest, GradientsGoThroughTheStatisticsOfAllParts) {
  norm(x).backward(Tensor::from_data(std::vector<float>{1, 0, 2}, {3, 1, 1, 1}, device));
  EXPECT_EQ(peer->sent, (std::vector<double>{3, 3, -5}));
  // dx = weight / σ · (dy - mean(dy) - (x - mean) / σ² · mean(dy · (x - mean))), means over all five values
  const auto expected = [&](double dy, double value) {
    return 3 * inv_std * (dy - 5.0 / 5 - (value - 4) / 8 * (-11.0 / 5));
  };
  expect_near(x.grad(), {expected(1, 1), expected(0, 2), expected(2, 3)}, 1e-6);
  // Of weight and bias each rank has its part, which data parallelism adds up.
  expect_near(norm.named_parameters()[0].second.grad(), {-5 * inv_std}, 1e-6);
  expect_near(norm.named_parameters()[1].second.grad(), {3}, 1e-6);
}

TEST_F(BatchPeersTest, EvaluationAsksNobody) {
  norm.eval();
  expect_near(norm(x), {3 * 1 + 7, 3 * 2 + 7, 3 * 3 + 7}, 1e-6);
  EXPECT_TRUE(peer->sent.empty());
}

TEST_F(BatchPeersTest, EveryBatchNormIsFound) {
  auto inner = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
      std::make_shared<BatchNorm2d>(1, device), std::make_shared<ReLU>()});
  Sequential net({std::make_shared<BatchNorm2d>(1, device), inner});
  EXPECT_EQ(synchronize_batch_norms(net, peer), 2);
  (*inner)(x);
  EXPECT_EQ(peer->sent, (std::vector<double>{3, 2, 2}));
}

TEST_F(BatchPeersTest, GradientsOfGradientsAreRefusedByName) {
  const std::vector<Tensor> inputs{x};
  const Tensor gradient = gradients(sum(square(norm(x))), inputs, {}, {.create_graph = true})[0];
  try {
    gradients(sum(gradient), inputs);
    FAIL() << "batch_norm with peers: did not throw";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find("batch_norm: gradients of its gradient"), 0U) << error.what();
  }
}

}  // namespace
}  // namespace dtrain
