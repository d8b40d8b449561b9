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
#include "runtime/nn/dropout.h"
#include "runtime/nn/layers.h"

namespace dtrain::test {

/// Linear layers with tanh behind each and, where it is asked for, dropout behind that.
class Layers final : public Module, public Chained {
 public:
  Layers(int count, const std::shared_ptr<Device>& device, double dropout = 0) {
    Generator generator(11);
    const auto key = std::make_shared<DropoutKey>(5, device);
    for (int i = 0; i < count; ++i) {
      const auto layer = std::make_shared<Linear>(8, 8, generator, device);
      chain_.push_back(
          {{{fmt::format("fc{}", i), layer}}, [layer](const Tensor& x) { return tanh((*layer)(x)); }});
      if (dropout > 0) drop(chain_.back(), fmt::format("drop{}", i), std::make_shared<Dropout>(dropout, key));
      for (const auto& [name, module] : chain_.back().modules) add_module(name, module);
    }
  }
  Tensor forward(const Tensor& x) override { return through(chain_, x); }
  std::vector<LayerUnit> chain() const override { return chain_; }

 private:
  static void drop(LayerUnit& part, const std::string& name, const std::shared_ptr<Dropout>& dropout) {
    part.modules.emplace_back(name, dropout);
    part.forward = [dropout, before = std::move(part.forward)](const Tensor& x) {
      return (*dropout)(before(x));
    };
  }

  std::vector<LayerUnit> chain_;
};

/// Random inputs by step, share and micro-batch; the loss is the mean of (output + 1) squared. A rank of
/// several shares has a micro-batch of each. Masks of `dropping`, where there is one, are keyed by samples of
/// which no two are alike.
class ChainBatches final : public MicroBatches {
 public:
  ChainBatches(int step, DataShare share, std::size_t count, std::shared_ptr<Device> device,
               Module* dropping = nullptr)
      : step_(step), share_(share), count_(count), device_(std::move(device)) {
    if (dropping != nullptr) keys_ = dropout_keys(*dropping);
  }
  std::size_t count() const noexcept override { return count_; }
  Tensors inputs(std::size_t i) override {
    const std::int64_t first = 2 * (static_cast<std::int64_t>(i) * share_.size + share_.rank);
    for (const auto& key : keys_) {
      key->set_step(step_);
      key->set_rows(Tensor::from_data({first, first + 1}, {2}, key->device()));
    }
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
  std::vector<std::shared_ptr<DropoutKey>> keys_;
};

}  // namespace dtrain::test
