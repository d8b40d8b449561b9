// The passes of a step one after the other, each through the whole network; their gradients add up there.
#pragma once

#include <memory>

#include "parallel/schedule/schedule.h"

namespace dtrain {

class Accumulation final : public Schedule {
 public:
  /// `waits_inside`: passes wait for peers while they compute (batch norm over all workers).
  explicit Accumulation(const StrategyContext& context, bool waits_inside = false)
      : context_(context), waits_inside_(waits_inside) {}

  std::unique_ptr<Module> build(const ModelFactory& factory, PassHooks& hooks,
                                const Deadline& deadline) override;
  void run(MicroBatches& passes, PassHooks& hooks, bool exchange) override;
  Tensors evaluate(const Tensors& inputs, PassHooks& hooks) override;
  bool recordable() const noexcept override { return !waits_inside_; }

 private:
  void run_pass(MicroBatches& passes, std::size_t i, PassHooks& hooks, bool exchange);

  StrategyContext context_;
  bool waits_inside_;
  Module* network_ = nullptr;
  const GradScaler* scaler_ = nullptr;
};

}  // namespace dtrain
