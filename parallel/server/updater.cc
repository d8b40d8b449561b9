#include "parallel/server/updater.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

class FunctionUpdater final : public Updater {
 public:
  explicit FunctionUpdater(KeyFunction function) : function_(std::move(function)) {}

  void update(std::span<const KeyUpdate> updates, const NamedTensors& /*all*/, double rate) override {
    const NoGrad no_grad;
    for (const KeyUpdate& update : updates) {
      if (!update.pushed.defined()) continue;
      Tensor value = update.value.detach();
      function_(update.key, update.pushed, value, rate);
      update.value.mark_modified();
    }
  }

 private:
  KeyFunction function_;
};

class OptimizerUpdater final : public Updater {
 public:
  OptimizerUpdater(OptimizerFactory make, const GradientLimits& limits)
      : make_(std::move(make)), limits_(limits) {}

  void update(std::span<const KeyUpdate> updates, const NamedTensors& all, double rate) override {
    if (updates.size() != all.size()) {
      throw UsageError(fmt::format(
          "parameter server: expected all {} keys in one push, since an optimizer updates them in one step, "
          "got {}",
          all.size(), updates.size()));
    }
    if (!optimizer_) optimizer_ = make_now(all);
    for (const KeyUpdate& update : updates) {
      Tensor value = update.value;
      if (update.pushed.defined()) value.set_grad(update.pushed);
    }
    optimizer_->set_lr(rate);
    limit_gradients(optimizer_->gradients(), limits_);
    optimizer_->step();
    optimizer_->zero_grad();
  }

  NamedTensors state() override { return optimizer_ ? optimizer_->named_state() : waiting_; }
  void load_state(NamedTensors state) override { waiting_ = std::move(state); }

 private:
  std::unique_ptr<Optimizer> make_now(const NamedTensors& all) {
    auto optimizer = make_(all);
    if (!waiting_.empty()) optimizer->load_state(std::exchange(waiting_, {}));
    return optimizer;
  }

  OptimizerFactory make_;
  GradientLimits limits_;
  std::unique_ptr<Optimizer> optimizer_;
  NamedTensors waiting_;  ///< until there is an optimizer
};

}  // namespace

void Updater::load_state(NamedTensors state) {
  if (state.empty()) return;
  throw UsageError(fmt::format(
      "parameter server: expected no state for an update that keeps none, got {} tensors", state.size()));
}

std::unique_ptr<Updater> make_updater(KeyFunction function) {
  return std::make_unique<FunctionUpdater>(std::move(function));
}

std::unique_ptr<Updater> make_optimizer_updater(OptimizerFactory make, const GradientLimits& limits) {
  return std::make_unique<OptimizerUpdater>(std::move(make), limits);
}

}  // namespace dtrain
