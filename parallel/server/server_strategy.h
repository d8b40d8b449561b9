// Data parallelism with parameters on servers: every worker computes its share of each batch with the whole
// network, pushes gradients to the servers and pulls parameters. Synchronous: the numbers of
// make_data_parallel(), bit for bit. Asynchronous: each worker proceeds at its own pace. Decision 037.
#pragma once

#include <optional>
#include <vector>

#include "parallel/schedule/accumulation.h"
#include "parallel/server/key_layout.h"
#include "parallel/server/key_value_store.h"
#include "parallel/server/server_rules.h"

namespace dtrain {

class ServerStrategy final : public Strategy, private AsyncSteps {
 public:
  /// `store` is borrowed. Asynchronous: `context.communicator` is one that only hands on what rank 0 says
  /// (see make_key_value_communicator), since a group dies with a worker.
  ServerStrategy(const StrategyContext& context, KeyValueStore& store, ServerUpdate update)
      : Strategy({.name = "parameter server",
                  .share = {context.communicator.rank(), context.communicator.size()},
                  .in_step = update == ServerUpdate::sync,
                  .replicated = false}),
        context_(context),
        store_(store),
        passes_(context) {}

  /// Throws UsageError for loss scaling, whose overflow each worker would see alone.
  void prepare(const ModelFactory& factory, const Deadline& deadline) override;
  /// Rank 0 keeps the optimizer's state for the servers.
  void load(const CheckpointFiles& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  /// Not recorded: each step waits for a server.
  void step(MicroBatches& passes, Exchange exchange) override;
  void sync_state(const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  /// On rank 0 what the servers hold, between two updates of each.
  RankState held() override;
  Replicas replicas() override;
  /// A pull of everything.
  void exchange_alone(const Deadline& deadline) override;

  AsyncSteps* asynchronous() noexcept override { return in_step() ? nullptr : this; }

 private:
  std::map<std::string, std::string> notes() const override;
  void load_notes(const std::map<std::string, std::string>& notes) override;
  std::int64_t own_steps() const override { return own_steps_; }
  void finish(const Deadline& deadline) override;
  PushDelay delay() const override { return delay_; }
  std::optional<UpdateDelays> delays() override;

  Deadline patience() const { return Deadline::after(context_.patience); }
  bool is_root() const noexcept { return context_.communicator.rank() == 0; }
  void start_servers(const Deadline& deadline);
  NamedTensors gradients();
  /// Whether they may be pushed; the same on all workers that step together.
  bool are_finite(const NamedTensors& gradients);
  NamedTensors values() const;
  void pull(const Deadline& deadline);

  StrategyContext context_;
  KeyValueStore& store_;
  Accumulation passes_;
  PassHooks hooks_;  ///< none: gradients are pushed behind the last pass
  UpdateGuard* guard_ = nullptr;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;  ///< whose learning rate the servers follow
  NamedTensors parameters_;
  std::vector<server::ParameterKey> keys_;
  NamedTensors loaded_;                ///< rank 0: the optimizer's state, until begin()
  std::vector<std::int64_t> applied_;  ///< updates by worker: of the checkpoint, then as of the last save()
  std::int64_t own_steps_ = 0;         ///< of this worker that had been applied when it began
  bool begun_ = false;
  PushDelay delay_;
};

}  // namespace dtrain
