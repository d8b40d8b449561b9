// Batch norm over the batch of all ranks, between real processes: outputs, gradients and running statistics
// of one process that sees the whole batch, however unevenly it is shared out, with gradient buckets under
// way meanwhile.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parallel/sync/batch_peers.h"
#include "parallel/sync/data_parallel.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "tests/ranks/world.h"

namespace dtrain::test {
namespace {

const Deadline kNever = Deadline::never();
constexpr std::chrono::seconds kTimeout{20};
constexpr double kBound = 1e-6;
/// Gradients in front of a batch norm are small differences of large sums: float32 leaves them that many
/// digits.
constexpr double kDeepBound = 5e-6;
constexpr std::int64_t kChannels = 6, kSide = 5;

/// Two blocks whose gradients, forward and backward, all pass through batch norms.
class Network final : public Module {
 public:
  Network(Generator generator, const std::shared_ptr<Device>& device) {
    Conv2dOptions same;
    same.geometry.pad_h = same.geometry.pad_w = 1;
    std::vector<std::shared_ptr<Module>> layers;
    for (std::int64_t in = 3; layers.size() < 9; in = kChannels) {
      layers.push_back(std::make_shared<Conv2d>(in, kChannels, 3, generator, device, same));
      layers.push_back(std::make_shared<BatchNorm2d>(kChannels, device));
      layers.push_back(std::make_shared<ReLU>());
    }
    blocks_ = add_module("blocks", std::make_shared<Sequential>(std::move(layers)));
    fc_ = add_module("fc", std::make_shared<Linear>(kChannels, 4, generator, device));
  }
  Tensor forward(const Tensor& x) override {
    return (*fc_)(flatten(adaptive_avg_pool2d((*blocks_)(x), 1, 1)));
  }
  void recompute_inside() { blocks_->set_recompute(); }

 private:
  std::shared_ptr<Sequential> blocks_;
  std::shared_ptr<Linear> fc_;
};

/// Rank r has 2 + r samples of the step's batch.
std::int64_t begin_of(int rank) { return 2 * rank + rank * (rank - 1) / 2; }

Tensor whole_batch(int size, int step, const std::shared_ptr<Device>& device) {
  Generator generator(100U + static_cast<unsigned>(step));
  // Far from zero, and differently so for each sample.
  const Tensor noise = Tensor::rand({begin_of(size), 3, kSide, kSide}, generator, device, 0.0F, 1.0F);
  const Tensor shift = Tensor::rand({begin_of(size), 3, 1, 1}, generator, device, -1.0F, 1.0F);
  return add(noise, shift);
}

/// Sum of losses over `x`, as a part of the mean over `samples`.
Tensor loss_of(Module& model, const Tensor& x, double weight) {
  const Tensor y = model(x);
  return mul(sum(square(add(y, -0.5))), weight);
}

std::string compare(const std::string& what, const Tensor& got, const Tensor& expected,
                    double bound = kBound) {
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  double scale = 1;
  for (const double value : b) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (a.size() == b.size() && std::abs(a[i] - b[i]) <= bound * scale) continue;
    return fmt::format("{}[{}]: {}, expected {}", what, i, a.size() == b.size() ? a[i] : NAN, b[i]);
  }
  return "ok";
}

std::string compare_models(Network& got, Network& expected) {
  const auto mine = got.named_parameters(), reference = expected.named_parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto verdict = compare("gradient of " + mine[i].first, mine[i].second.grad(),
                                 reference[i].second.grad(), kDeepBound);
    if (verdict != "ok") return verdict;
  }
  const auto buffers = got.named_buffers(), wanted = expected.named_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto verdict = compare(buffers[i].first, buffers[i].second, wanted[i].second);
    if (verdict != "ok") return verdict;
  }
  return "ok";
}

/// Buckets of a few parameters, so that all-reduces are under way whenever a batch norm exchanges something.
ReducerOptions small_buckets() {
  return {.buckets = {.first_bytes = 256, .cap_bytes = 400}, .arrival_order = {}};
}

std::string whole_batch_norm(Rank& self, bool recompute) {
  const auto device = make_device("cpu");
  Network model(Generator(1), device), reference(Generator(1), device);
  if (recompute) model.recompute_inside();
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  if (synchronize_batch_norms(model, make_batch_peers(*self.communicator, kTimeout)) != 3)
    return "expected three batch norms";
  for (int step = 0; step < 3; ++step) {
    const Tensor all = whole_batch(self.size(), step, device);
    const double samples = static_cast<double>(all.size(0));
    const Tensor mine = all.slice(0, begin_of(self.rank()), begin_of(self.rank() + 1)).clone();
    model.zero_grad(), reference.zero_grad();
    loss_of(model, mine, self.size() / samples).backward();
    parallel.finish(kNever);
    loss_of(reference, all, 1 / samples).backward();
    if (const auto verdict = compare_models(model, reference); verdict != "ok")
      return fmt::format("step {}: {}", step, verdict);
    const NoGrad no_grad;
    for (Network* network : {&model, &reference}) {
      for (auto& [name, parameter] : network->named_parameters())
        parameter.add_in_place(parameter.grad(), -0.01);
    }
  }
  return "ok";
}

/// The input's gradient of each rank is its part of the whole's, and so is the output.
std::string one_layer(Rank& self) {
  const auto device = make_device("cpu");
  BatchNorm2d norm(3, device), reference(3, device);
  norm.synchronize(make_batch_peers(*self.communicator, kTimeout));
  const Tensor all = whole_batch(self.size(), 7, device);
  const std::int64_t begin = begin_of(self.rank()), end = begin_of(self.rank() + 1);
  Tensor whole = all.clone(), mine = all.slice(0, begin, end).clone();
  whole.set_requires_grad(true), mine.set_requires_grad(true);
  const Tensor expected = reference.forward(whole, Activation::relu),
               got = norm.forward(mine, Activation::relu);
  sum(pow(expected, 3)).backward();
  sum(pow(got, 3)).backward();
  if (const auto verdict = compare("output", got, expected.slice(0, begin, end)); verdict != "ok")
    return verdict;
  return compare("gradient of the input", mine.grad(), whole.grad().slice(0, begin, end));
}

/// A rank that leaves a batch norm out is named, not waited for without end.
std::string different_paths(Rank& self) {
  const auto device = make_device("cpu");
  BatchNorm2d norm(3, device), other(3, device);
  const auto peers = make_batch_peers(*self.communicator, kTimeout);
  norm.synchronize(peers);
  Tensor x = whole_batch(1, 0, device);
  x.set_requires_grad(true);
  try {
    const Tensor y = sum(norm(x));
    if (self.rank() == 0) {
      y.backward();
    } else {
      norm(x);
    }
  } catch (const PeerError& error) {
    return error.what();
  }
  return "no error came";
}

/// A part of the model that was computed again and turned out unused averages to what the others have.
std::string unused_when_recomputed(Rank& self) {
  const auto device = make_device("cpu");
  class Optional final : public Module {
   public:
    Optional(Generator generator, const std::shared_ptr<Device>& device) {
      used_ = add_module("used", std::make_shared<Linear>(4, 4, generator, device));
      spare_ = add_module("spare", std::make_shared<Linear>(4, 4, generator, device));
    }
    Tensor forward(const Tensor& x) override {
      return with_spare ? add((*used_)(x), (*spare_)(x)) : (*used_)(x);
    }
    bool with_spare = true;

   private:
    std::shared_ptr<Linear> used_, spare_;
  } model(Generator(1), device);
  model.set_recompute();
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  const auto spare_bias = model.named_parameters()[3].second;
  for (int step = 0; step < 2; ++step) {
    model.with_spare = step == 0 || self.rank() == 0;
    model.zero_grad();
    sum(model(Tensor::ones({2, 4}, device))).backward();
    parallel.finish(kNever);
    const double expected = step == 0 ? 2 : 2.0 / self.size();
    for (const double got : spare_bias.grad().to_vector<double>()) {
      if (std::abs(got - expected) > kBound)
        return fmt::format("step {}: {}, expected {}", step, got, expected);
    }
  }
  return "ok";
}

class SyncBatchNorm : public OnBackend {};

TEST_P(SyncBatchNorm, OneLayerIsThatOfTheWholeBatch) { expect_ok("one_layer", {2, 3}); }
TEST_P(SyncBatchNorm, TrainingIsThatOfTheWholeBatch) { expect_ok("whole_batch", {2, 3}); }
TEST_P(SyncBatchNorm, RecomputedTrainingIsThatOfTheWholeBatch) { expect_ok("recomputed", {2, 3}); }
TEST_P(SyncBatchNorm, UnusedPartsOfARecomputedModelAverage) { expect_ok("unused_when_recomputed", {2}); }
TEST_P(SyncBatchNorm, DifferentPathsAreAnError) {
  for (const auto& verdict : run_world(GetParam(), 2, "different_paths")) {
    EXPECT_THAT(verdict, testing::HasSubstr("batch norm statistics"));
    EXPECT_THAT(verdict, testing::HasSubstr("batch norm gradients"));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SyncBatchNorm, testing::Values("tcp", "mpi", "tcp_shm"),
                         [](const auto& one) { return std::string(one.param); });

TEST(SyncBatchNormAlone, AWorldOfOneIsTheWholeBatch) {
  EXPECT_THAT(run_world("self", 1, "whole_batch"), testing::ElementsAre("ok"));
}

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("one_layer", one_layer);
  register_scenario("whole_batch", [](Rank& self) { return whole_batch_norm(self, false); });
  register_scenario("recomputed", [](Rank& self) { return whole_batch_norm(self, true); });
  register_scenario("unused_when_recomputed", unused_when_recomputed);
  register_scenario("different_paths", different_paths);
  return run_tests_or_scenario(argc, argv);
}
