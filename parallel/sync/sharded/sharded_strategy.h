// Sharded data parallelism (ZeRO, Rajbhandari et al. 2020): every rank computes its share of each batch with
// the whole network, but keeps the optimizer's state, with the second stage the gradients too, and with the
// third the parameters, of 1/W of the elements only. docs/parallelism.md has the costs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "parallel/strategy.h"
#include "parallel/sync/sharded/sharded_parameters.h"

namespace dtrain {

class ShardedStrategy final : public Strategy {
 public:
  /// The patience of `options` is the context's. Without `groups` all ranks have a part each.
  ShardedStrategy(const StrategyContext& context, ShardOptions options,
                  const std::optional<ShardGroups>& groups = std::nullopt);

  std::string_view name() const noexcept override { return "sharded data parallel"; }
  DataShare share() const noexcept override {
    return {context_.communicator.rank(), context_.communicator.size()};
  }
  bool holds_outputs() const noexcept override { return true; }
  bool in_step() const noexcept override { return true; }

  /// With stage parameters no more than a module is whole at a time while the network is built. Throws
  /// UsageError on ranks that would own nothing: a network of fewer elements than there are ranks.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// Every rank writes and reads what it owns.
  bool sharded() const noexcept override { return true; }
  bool computes_together() const noexcept override { return shards_.divides(); }
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override { shards_.begin(context_.communicator, deadline); }
  void step(Passes& passes, Exchange exchange) override;
  /// None: buckets are reused within a step, which a recording would have to be shown.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  StateParts save() override { return shards_.save(optimizer_->named_state()); }
  /// Parameters; the optimizer's state is held once. With stage parameters nothing is held twice but by
  /// copies.
  Replicas replicas() override { return shards_.replicas(context_.communicator); }
  /// The whole network. With stage parameters each look at one that learns is collective.
  Module& module() noexcept override { return *network_; }
  /// The optimizer of this rank's elements: parameters keep their names and are flat.
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }
  Communicator* ranges() noexcept override { return &shards_.parts(); }
  void exchange_alone(const Deadline& /*deadline*/) override {
    shards_.exchange_nothing(Deadline::after(context_.patience));
  }
  /// What a rank held that has parts only, and what moved.
  std::string account(std::int64_t steps) const override;

  /// What was moved so far; after begin().
  const ShardStats& stats() const noexcept { return shards_.stats(); }
  /// With stage parameters, after prepare(); else null.
  const DividedParameters* divided() const noexcept { return shards_.divided(); }

 private:
  void run_pass(Passes& passes, std::size_t i, bool exchange);
  void update();
  void clip_to_norm(const std::vector<Tensor>& gradients, double most);
  Deadline patience() const { return Deadline::after(context_.patience); }

  StrategyContext context_;
  ShardStage stage_;
  ShardedParameters shards_;
  GradScaler* scaler_ = nullptr;
  UpdateGuard* guard_ = nullptr;
  GradientLimits limits_;
  std::function<void()> before_update_;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace dtrain
