// Sharded data parallelism (ZeRO, Rajbhandari et al. 2020): every rank computes its share of each batch with
// the whole network, but keeps the optimizer's state, with the second stage the gradients too, and with the
// third the parameters, only for 1/W of the elements. docs/parallelism.md has the costs.
#pragma once

#include <optional>

#include "parallel/sync/gradient_sync.h"
#include "parallel/sync/sharded/sharded_parameters.h"

namespace dtrain {

class ShardedSync : public GradientSync {
 public:
  /// The patience of `options` is the context's. Without `groups` all ranks have a part each.
  ShardedSync(const StrategyContext& context, ShardOptions options,
              const std::optional<ShardGroups>& groups = std::nullopt);

  bool keeps_gradients() const noexcept override { return false; }
  ShardedParameters* shards() noexcept override { return &shards_; }

  /// With stage parameters no more than a module is whole at a time while the network is built.
  std::unique_ptr<Module> build(const std::function<std::unique_ptr<Module>()>& make) override {
    return shards_.build(make);
  }
  /// Throws UsageError on ranks that would own nothing: a network of fewer elements than there are ranks.
  void attach(const SharedNetwork& shared) override;
  NamedTensors updated() const override { return shards_.owned(); }
  void begin(const Deadline& deadline) override { shards_.begin(dp_group(), deadline); }
  void begin_step(std::size_t /*passes*/) override { shards_.begin_step(); }
  void begin_use(ParameterUse use) override { shards_.begin_use(use); }
  void run_backward(const MicroBatchBackward& which, const std::function<void()>& body) override;
  void after_backward(const MicroBatchBackward& which) override;
  void finish(const Deadline& /*deadline*/) override { shards_.finish_step(); }
  void drop_step() override { shards_.drop_step(); }
  void take_update(bool exchange, const Deadline& deadline) override;
  /// Parameters; the optimizer's state is held once. With stage parameters nothing is held twice but by
  /// copies.
  Replicas replicas(const NamedTensors& /*state*/) override { return shards_.replicas(dp_group()); }
  void exchange_alone(const Deadline& deadline) override { shards_.exchange_nothing(deadline); }

 private:
  bool exchanges(const MicroBatchBackward& which) const noexcept;

  ShardStage stage_;
  ShardedParameters shards_;
};

}  // namespace dtrain
