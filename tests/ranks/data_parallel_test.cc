// Data parallel training between real processes: the same parameters on every rank, the gradients of one
// process that sees the whole batch, unused parameters, accumulation, models that differ.
#include "parallel/sync/data_parallel.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/autograd/autocast.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/optim/rmsprop.h"
#include "runtime/optim/sgd.h"
#include "tests/ranks/torch_unused.h"
#include "tests/ranks/world.h"

namespace dtrain::test {
namespace {

const Deadline kNever = Deadline::never();
constexpr std::int64_t kIn = 12, kHidden = 40, kBatch = 6;

// Two branches, so that a rank can leave one out.
struct Shape {
  std::int64_t in = kIn, hidden = kHidden, out = 3;
  bool squash = false;  ///< tanh, not relu
};

class Branches final : public Module {
 public:
  Branches(Generator generator, const std::shared_ptr<Device>& device, const Shape& shape = {})
      : squash_(shape.squash) {
    first_ = add_module("first", std::make_shared<Linear>(shape.in, shape.hidden, generator, device));
    second_ = add_module("second", std::make_shared<Linear>(shape.hidden, shape.out, generator, device));
    spare_ = add_module("spare", std::make_shared<Linear>(shape.hidden, shape.out, generator, device));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor linear = (*first_)(x), hidden = squash_ ? tanh(linear) : relu(linear);
    return use_spare ? add((*second_)(hidden), (*spare_)(hidden)) : (*second_)(hidden);
  }
  bool use_spare = true;

 private:
  bool squash_;
  std::shared_ptr<Linear> first_, second_, spare_;
};

Tensor part_of_batch(int part, const std::shared_ptr<Device>& device) {
  Generator generator(100U + static_cast<unsigned>(part));
  return Tensor::rand({kBatch, kIn}, generator, device, -1.0F, 1.0F);
}

Tensor loss_of(Module& model, const Tensor& x) {
  const Tensor y = model(x);
  return mean(mul(y, y));
}

void step_by(Module& model, double lr) {
  const NoGrad no_grad;
  for (auto& [name, parameter] : model.named_parameters()) parameter.add_in_place(parameter.grad(), -lr);
}

// One process, all parts: the mean of the parts' losses.
void reference_backward(Branches& model, int parts, const std::shared_ptr<Device>& device) {
  model.zero_grad();
  for (int part = 0; part < parts; ++part) {
    mul(loss_of(model, part_of_batch(part, device)), Tensor::full({}, 1.0 / parts, device)).backward();
  }
}

std::string compare_gradients(Module& got, Module& expected, double tolerance) {
  const auto mine = got.named_parameters(), reference = expected.named_parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto a = mine[i].second.grad().to_vector<float>(),
               b = reference[i].second.grad().to_vector<float>();
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (std::abs(a[k] - b[k]) > tolerance) {
        return fmt::format("{}[{}]: gradient {}, expected {}", mine[i].first, k, a[k], b[k]);
      }
    }
  }
  return "ok";
}

// Small buckets, so that several are under way while backward continues.
ReducerOptions small_buckets() {
  return {.buckets = {.first_bytes = 256, .cap_bytes = 400}, .arrival_order = {}};
}

// One rank's input overflows float16: every rank skips that step and no other, and all stay equal.
std::string overflow_on_one_rank(Rank& self) {
  const auto device = make_device("cpu");
  Branches model(Generator(0), device);
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  Sgd optimizer(model.named_parameters(), {.lr = 0.01, .momentum = 0.9});
  GradScaler scaler(device, {.initial_scale = 1024});
  scaler.attach(optimizer);
  LowPrecisionWeights weights;
  const Autocast autocast(Precision::fp16, weights);
  constexpr int kBadStep = 1;
  for (int step = 0; step < 4; ++step) {
    model.zero_grad();
    const std::vector<float> before = model.named_parameters()[0].second.to_vector<float>();
    const bool overflows = step == kBadStep && self.rank() == self.size() - 1;
    const Tensor x = mul(part_of_batch(self.rank(), device), overflows ? 1e6 : 1.0);
    loss_of(model, x).backward(scaler.scale_seed(1.0));
    parallel.finish(kNever);
    scaler.unscale(optimizer.gradients());
    optimizer.step();
    scaler.update();
    const bool moved = before != model.named_parameters()[0].second.to_vector<float>();
    if (moved == (step == kBadStep))
      return fmt::format("step {}: parameters {}", step, moved ? "moved" : "stayed");
  }
  if (scaler.skipped() != 1 || scaler.scale() != 512) {
    return fmt::format("{} steps skipped, scale {}; expected 1 and 512", scaler.skipped(), scaler.scale());
  }
  return "ok";
}

// Rank 0's running statistics are everybody's once asked for.
std::string buffers_of_first_rank(Rank& self) {
  const auto device = make_device("cpu");
  BatchNorm2d norm(3, device);
  DataParallel parallel(*self.communicator, norm, kNever);
  Generator generator(static_cast<unsigned>(self.rank()));
  for (int pass = 0; pass <= self.rank(); ++pass) norm(Tensor::rand({4, 3, 2, 2}, generator, device));
  parallel.sync_buffers(kNever);
  BatchNorm2d reference(3, device);
  Generator first(0U);
  reference(Tensor::rand({4, 3, 2, 2}, first, device));
  const auto mine = norm.named_buffers(), expected = reference.named_buffers();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].second.to_vector<double>() != expected[i].second.to_vector<double>()) {
      return mine[i].first + " differs from rank 0's";
    }
  }
  return "ok";
}

std::string same_gradients(Rank& self) {
  const auto device = make_device("cpu");
  // Ranks start from different weights; rank 0's must win.
  Branches model(Generator(static_cast<unsigned>(self.rank())), device), reference(Generator(0), device);
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  for (int step = 0; step < 3; ++step) {
    model.zero_grad();
    loss_of(model, part_of_batch(self.rank(), device)).backward();
    parallel.finish(kNever);
    reference_backward(reference, self.size(), device);
    if (const auto verdict = compare_gradients(model, reference, 1e-6); verdict != "ok") return verdict;
    step_by(model, 0.1), step_by(reference, 0.1);
  }
  if (parallel.reducer().bucket_count() < 3) return "expected several buckets";
  std::vector<float> weights;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const float value : parameter.to_vector<float>()) weights.push_back(value);
  }
  std::vector<float> all(weights.size() * static_cast<std::size_t>(self.size()));
  self.communicator
      ->all_gather({weights.data(), weights.size(), DType::f32}, {all.data(), all.size(), DType::f32},
                   "weights")
      ->wait(kNever);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != weights[i % weights.size()]) return "weights differ between ranks";
  }
  return "ok";
}

// The last rank leaves a branch out: it counts as zero there, and that rank gets the average too.
std::string unused_branch(Rank& self) {
  const auto device = make_device("cpu");
  Branches model(Generator(7), device), reference(Generator(7), device);
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  for (int step = 0; step < 2; ++step) {
    model.zero_grad();
    model.use_spare = self.rank() != self.size() - 1;
    loss_of(model, part_of_batch(self.rank(), device)).backward();
    parallel.finish(kNever);
  }
  reference.zero_grad();
  for (int part = 0; part < self.size(); ++part) {
    reference.use_spare = part != self.size() - 1;
    mul(loss_of(reference, part_of_batch(part, device)), Tensor::full({}, 1.0 / self.size(), device))
        .backward();
  }
  return compare_gradients(model, reference, 1e-6);
}

// Numbers that are easily had in Python too.
void fill(Tensor tensor, int seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < tensor.numel(); ++i)
    values.push_back(static_cast<float>(((i + seed) * 37) % 11 - 5) / 8);
  const NoGrad no_grad;
  tensor.copy_from(Tensor::from_data(values, tensor.shape(), tensor.shared_device()));
}

/// One layer's bias is frozen; the spare layer is used by both ranks, by the first one alone, by none, by
/// both.
std::string like_torch(Rank& self, const OptimizerFactory& make, const std::vector<float>& expected) {
  const auto device = make_device("cpu");
  Branches model(Generator(0), device, {.in = 3, .hidden = 4, .out = 2, .squash = true});
  int seed = 0;
  for (auto& [name, parameter] : model.named_parameters()) fill(parameter, seed++);
  model.named_parameters()[1].second.set_requires_grad(false);
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  const auto optimizer = make(model.named_parameters());
  for (int step = 0; step < 4; ++step) {
    Tensor x = Tensor::empty({2, 3}, device);
    fill(x, 5 * self.rank() + step);
    model.use_spare = step != 2 && (step != 1 || self.rank() == 0);
    model.zero_grad();
    loss_of(model, x).backward();
    parallel.finish(kNever);
    clip_grad_norm(optimizer->gradients(), 0.5);
    optimizer->step();
    const bool has_gradient = model.named_parameters()[4].second.grad().defined();
    if (has_gradient == (step == 2))
      return fmt::format("step {}: the spare layer has {} gradient", step, has_gradient ? "a" : "no");
  }
  std::size_t i = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const float value : parameter.to_vector<float>()) {
      if (std::abs(value - expected[i]) > 2e-6)
        return fmt::format("{}: {}, PyTorch {}", name, value, expected[i]);
      ++i;
    }
  }
  return i == expected.size() ? "ok" : "expected more weights";
}

std::string sgd_like_torch(Rank& self) {
  return like_torch(
      self,
      [](const NamedTensors& p) {
        return std::make_unique<Sgd>(p, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
      },
      kTorchSgd);
}

std::string adamw_like_torch(Rank& self) {
  return like_torch(
      self,
      [](const NamedTensors& p) {
        return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
      },
      kTorchAdamW);
}

std::string rmsprop_like_torch(Rank& self) {
  return like_torch(
      self,
      [](const NamedTensors& p) {
        return std::make_unique<RmsProp>(p, RmsPropOptions{.lr = 0.01, .weight_decay = 0.1, .momentum = 0.9});
      },
      kTorchRmsProp);
}

std::string adagrad_like_torch(Rank& self) {
  return like_torch(
      self,
      [](const NamedTensors& p) {
        return std::make_unique<Adagrad>(p, AdagradOptions{.lr = 0.05, .weight_decay = 0.1});
      },
      kTorchAdagrad);
}

// Two passes a step on each rank, only the second communicates.
std::string accumulation(Rank& self) {
  const auto device = make_device("cpu");
  Branches model(Generator(7), device), reference(Generator(7), device);
  DataParallel parallel(*self.communicator, model, kNever, small_buckets());
  for (int step = 0; step < 2; ++step) {
    model.zero_grad();
    {
      const auto no_sync = parallel.no_sync();
      mul(loss_of(model, part_of_batch(2 * self.rank(), device)), Tensor::full({}, 0.5, device)).backward();
    }
    mul(loss_of(model, part_of_batch(2 * self.rank() + 1, device)), Tensor::full({}, 0.5, device)).backward();
    parallel.finish(kNever);
  }
  reference_backward(reference, 2 * self.size(), device);
  return compare_gradients(model, reference, 1e-6);
}

std::string other_model(Rank& self) {
  const auto device = make_device("cpu");
  Generator generator(0);
  Linear model(4, self.rank() == 1 ? 5 : 6, generator, device);
  try {
    DataParallel parallel(*self.communicator, model, kNever);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error came";
}

class Parallel : public OnBackend {};

TEST_P(Parallel, GradientsAreThoseOfTheWholeBatch) { expect_ok("same_gradients", {1, 2, 3}); }
TEST_P(Parallel, UnusedParametersDoNotHang) { expect_ok("unused_branch", {2, 3}); }
TEST_P(Parallel, UnusedParametersMoveAsInPyTorch) {
  for (const char* optimizer : {"sgd", "adamw", "rmsprop", "adagrad"})
    expect_ok(std::string(optimizer) + "_like_torch", {2});
}
TEST_P(Parallel, AccumulatesLocally) { expect_ok("accumulation", {2}); }
TEST_P(Parallel, OverflowOnOneRankSkipsTheStepOnAll) { expect_ok("overflow", {1, 2, 3}); }
TEST_P(Parallel, BuffersAreThoseOfTheFirstRank) { expect_ok("buffers", {1, 3}); }
TEST_P(Parallel, RefusesDifferentModels) {
  for (const auto& verdict : run_world(GetParam(), 3, "other_model")) {
    EXPECT_THAT(verdict, testing::HasSubstr("rank 1 built a different model from rank 0"));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Parallel, testing::Values("tcp", "mpi", "tcp_shm"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("same_gradients", same_gradients);
  register_scenario("unused_branch", unused_branch);
  register_scenario("sgd_like_torch", sgd_like_torch);
  register_scenario("adamw_like_torch", adamw_like_torch);
  register_scenario("rmsprop_like_torch", rmsprop_like_torch);
  register_scenario("adagrad_like_torch", adagrad_like_torch);
  register_scenario("accumulation", accumulation);
  register_scenario("overflow", overflow_on_one_rank);
  register_scenario("buffers", buffers_of_first_rank);
  register_scenario("other_model", other_model);
  return run_tests_or_scenario(argc, argv);
}
