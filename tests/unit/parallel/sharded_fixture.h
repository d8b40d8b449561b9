// What tests of sharded data parallelism train: linear layers on numbers that depend on step, rank and pass
// alone, with ranks as threads.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/thread_ranks.h"
#include "parallel/forms.h"
#include "runtime/nn/layers.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/parameter_groups.h"
#include "runtime/optim/sgd.h"

namespace dtrain {

inline const Deadline kNever = Deadline::never();
inline constexpr auto kPatience = std::chrono::seconds(30);

/// Linear layers with relu between them.
class Layers final : public Module {
 public:
  Layers(std::vector<std::int64_t> widths, const std::shared_ptr<Device>& device) {
    Generator generator(11);
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_.push_back(add_module(fmt::format("fc{}", i),
                                   std::make_shared<Linear>(widths[i], widths[i + 1], generator, device)));
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) h = (*layers_[i])(i == 0 ? h : relu(h));
    return h;
  }

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
};

/// Batches of numbers that depend on step, rank and pass alone.
class Numbers final : public MicroBatches {
 public:
  Numbers(int step, DataShare share, std::size_t passes, std::int64_t width, std::shared_ptr<Device> device)
      : step_(step), share_(share), passes_(passes), width_(width), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return passes_; }
  Tensors inputs(std::size_t i) override {
    Generator generator(1000U * static_cast<unsigned>(step_) + 10U * static_cast<unsigned>(share_.rank) +
                        static_cast<unsigned>(i));
    return {Tensor::randn({4, width_}, generator, device_)};
  }
  Tensor loss(std::size_t, const Tensors& outputs) override {
    const Tensor loss = mean(mul(outputs[0], outputs[0]));
    last_loss = loss.item();
    return loss;
  }
  double weight(std::size_t) const override { return 1.0 / static_cast<double>(passes_); }
  void losses_done() override {}
  void gradients_done() override { ++done; }

  double last_loss = 0;
  int done = 0;

 private:
  int step_;
  DataShare share_;
  std::size_t passes_;
  std::int64_t width_;
  std::shared_ptr<Device> device_;
};

struct Setting {
  std::vector<std::int64_t> widths = {20, 130, 37, 5};
  std::string optimizer = "adamw";
  std::size_t passes = 1;
  GradientLimits limits = {};
  std::size_t bucket_bytes = 2048;
};

inline ModelFactory factory_of(const Setting& setting) {
  return {.build =
              [setting](const std::shared_ptr<Device>& device) {
                return std::make_unique<Layers>(setting.widths, device);
              },
          .make_optimizer = [setting](const NamedTensors& parameters) -> std::unique_ptr<Optimizer> {
            if (setting.optimizer == "sgd")
              return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.05, .momentum = 0.9});
            return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01});
          },
          .limits = setting.limits};
}

/// A row of the table that tests/bench/shards.sh prints: bytes that a rank holds, and by how many buckets of
/// 1 MiB that is more than the formula says.
inline void show_memory(std::string_view stage, int ranks, double elements, double formula, double counted) {
  fmt::print(
      "memory: {:<11} W = {}  {:>6.0f} MB in all  formula {:>11.0f}  counted {:>11.0f}  buckets {:.3f}\n",
      stage, ranks, 16 * elements / 1e6, formula, counted, (counted - formula) / (1U << 20));
}

/// Of a network whose parameters take 16 MB, or DTRAIN_SHARD_MEGABYTES (400: minutes).
inline std::vector<std::int64_t> large_widths() {
  const char* const text = std::getenv("DTRAIN_SHARD_MEGABYTES");
  const double elements = (text != nullptr ? std::atof(text) : 16) * 1e6 / 4;
  const auto width = 64 * static_cast<std::int64_t>(std::ceil(std::sqrt(elements / 3) / 64));
  return {64, width, width, width, width, 64};
}

inline std::vector<std::vector<float>> values_of(const NamedTensors& tensors) {
  std::vector<std::vector<float>> values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor.to_vector<float>());
  return values;
}

/// Weights after `steps` steps, on every rank; all ranks must agree.
inline std::vector<std::vector<float>> train(int ranks, const Setting& setting,
                                             std::optional<ShardStage> stage, int steps = 4) {
  NullLog log;
  std::vector<std::vector<std::vector<float>>> all(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const StrategyContext context{communicator, device, kPatience, {&clock}};
    std::unique_ptr<Strategy> strategy;
    if (stage) {
      strategy = make_sharded(context, ShardOptions{.stage = *stage, .bucket_bytes = setting.bucket_bytes});
    } else {
      strategy = make_data_parallel(context);
    }
    strategy->prepare(factory_of(setting), kNever);
    strategy->begin(kNever);
    for (int step = 0; step < steps; ++step) {
      Numbers passes(step, strategy->share(), setting.passes, setting.widths.front(), device);
      strategy->step(passes);
      EXPECT_EQ(passes.done, 1);
    }
    // One look at a time: parameters that are split come together.
    all[static_cast<std::size_t>(communicator.rank())] = values_of(strategy->module().state_dict());
    communicator.barrier("end")->wait(kNever);
  });
  for (const auto& one : all) EXPECT_EQ(one, all[0]) << "ranks differ";
  return all[0];
}

inline double largest_difference(const std::vector<std::vector<float>>& a,
                                 const std::vector<std::vector<float>>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a[i].size(); ++k)
      largest = std::max(largest, std::abs(static_cast<double>(a[i][k]) - b[i][k]));
  }
  return largest;
}

}  // namespace dtrain
