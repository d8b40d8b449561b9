// What the pipelines' tests train: layers of 8 features in a row, and micro-batches of two samples.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "parallel/strategy.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"

namespace dtrain::test {

/// Linear layers with tanh behind each.
class Layers final : public Module, public Chained {
 public:
  Layers(int count, const std::shared_ptr<Device>& device) {
    Generator generator(11);
    for (int i = 0; i < count; ++i)
      add_module(fmt::format("fc{}", i), std::make_shared<Linear>(8, 8, generator, device));
  }
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<ChainPart> chain() const override {
    std::vector<ChainPart> chain;
    for (const auto& [name, layer] : children())
      chain.push_back({{{name, layer}}, [layer = layer](const Tensor& x) { return tanh((*layer)(x)); }});
    return chain;
  }
};

/// Random inputs by step, share and micro-batch; the loss is the mean of (output + 1) squared. A rank of
/// several shares has a micro-batch of each.
class MicroBatches final : public Passes {
 public:
  MicroBatches(int step, DataShare share, std::size_t count, std::shared_ptr<Device> device)
      : step_(step), share_(share), count_(count), device_(std::move(device)) {}
  std::size_t count() const noexcept override { return count_; }
  Tensors inputs(std::size_t i) override {
    const auto pass = static_cast<unsigned>(i), share = static_cast<unsigned>(share_.rank);
    Generator generator(1000U * static_cast<unsigned>(step_) +
                        (share_.parts > 1 ? 100U * (share + pass) : 100U * share + pass));
    return {Tensor::randn({2, 8}, generator, device_)};
  }
  Tensor loss(std::size_t i, const Tensors& outputs) override {
    if (static_cast<int>(i) == fail_at) throw UsageError("a loss that fails");
    return mean(square(outputs[0] + 1.0));
  }
  double weight(std::size_t) const override {
    return share_.parts > 1 ? 1.0 : 1.0 / static_cast<double>(count_);
  }
  void losses_done() override { ++losses; }
  void gradients_done() override { ++gradients; }
  int losses = 0, gradients = 0;  ///< how often they were told to be done
  int fail_at = -1;               ///< the micro-batch whose loss throws; -1: none

 private:
  int step_;
  DataShare share_;
  std::size_t count_;
  std::shared_ptr<Device> device_;
};

}  // namespace dtrain::test
