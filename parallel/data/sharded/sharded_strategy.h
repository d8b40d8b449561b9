// Sharded data parallelism (ZeRO, Rajbhandari et al. 2020): every rank computes its share of each batch with
// the whole network, but keeps the optimizer's state, and with the second stage the gradients too, of 1/W of
// the elements only. docs/parallelism.md has the costs.
#pragma once

#include <memory>
#include <vector>

#include "parallel/data/sharded/shard_exchange.h"
#include "parallel/data/sharded/shard_state.h"
#include "parallel/strategy.h"

namespace dtrain {

class ShardedStrategy final : public Strategy {
 public:
  /// The patience of `options` is the context's.
  ShardedStrategy(const StrategyContext& context, ShardOptions options);

  std::string_view name() const noexcept override { return "sharded data parallel"; }
  DataShare share() const noexcept override {
    return {context_.communicator.rank(), context_.communicator.size()};
  }
  bool holds_outputs() const noexcept override { return true; }
  bool in_step() const noexcept override { return true; }

  /// Throws UsageError on ranks that would own nothing: a network of fewer elements than there are ranks.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// Every rank writes and reads what it owns.
  bool sharded() const noexcept override { return true; }
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  void step(Passes& passes, Exchange exchange) override;
  /// None: buckets are reused within a step, which a recording would have to be shown.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  StateParts save() override;
  /// Parameters; the optimizer's state is held once.
  Replicas replicas() override { return {&context_.communicator, network_->named_parameters()}; }
  /// The whole network.
  Module& module() noexcept override { return *network_; }
  /// The optimizer of this rank's elements: parameters keep their names and are flat.
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }
  void exchange_alone(const Deadline& deadline) override;

  /// What was moved so far; after begin().
  const ShardStats& stats() const noexcept { return exchange_->stats(); }

 private:
  void run_pass(Passes& passes, std::size_t i, bool exchange);
  void update();
  void clip_to_norm(const std::vector<Tensor>& gradients, double most);
  Deadline patience() const { return Deadline::after(context_.patience); }

  StrategyContext context_;
  ShardOptions options_;
  GradScaler* scaler_ = nullptr;
  GradientLimits limits_;
  std::unique_ptr<Module> network_;
  std::vector<OwnedParameter> parameters_;  ///< those that learn, in the module's order
  std::vector<Tensor> owned_;  ///< the optimizer's, beside `parameters_`; undefined: owns nothing
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ShardExchange> exchange_;
};

}  // namespace dtrain
