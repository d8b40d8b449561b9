// Several devices in one process: a strategy inside a strategy. A process with k devices is one rank of any
// other strategy, which trains a network that happens to compute on all of them (replicated_module.h).
#pragma once

#include <memory>
#include <vector>

#include "parallel/data/replicated_module.h"
#include "parallel/strategy.h"

namespace dtrain {

class MultiDeviceStrategy final : public Strategy {
 public:
  /// `devices`: one replica each; batches come to the first, losses are computed there. `inner`'s context
  /// has the device on which parameters live and are updated: the first of `devices`, or the host. Throws
  /// UsageError for fewer than two devices and for one that is named twice.
  MultiDeviceStrategy(std::unique_ptr<Strategy> inner, std::vector<std::shared_ptr<Device>> devices);

  std::string_view name() const noexcept override { return "replicas"; }
  DataShare share() const noexcept override { return inner_->share(); }
  bool holds_outputs() const noexcept override { return inner_->holds_outputs(); }
  bool in_step() const noexcept override { return inner_->in_step(); }

  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  bool sharded() const noexcept override { return inner_->sharded(); }
  void load(const SavedState& state, const Deadline& deadline) override { inner_->load(state, deadline); }
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(Passes& passes, Exchange exchange) override { inner_->step(passes, exchange); }
  /// None: a recording is of one device.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override { inner_->settle(deadline); }
  Tensors evaluate(const Tensors& inputs) override { return inner_->evaluate(inputs); }
  StateParts save() override { return inner_->save(); }
  StateParts replica() override { return inner_->replica(); }
  Replicas replicas() override { return inner_->replicas(); }
  Module& module() noexcept override { return inner_->module(); }
  Optimizer* optimizer() noexcept override { return inner_->optimizer(); }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }

  /// Bytes that crossed between the devices so far; after prepare().
  const ReplicaTraffic& traffic() const noexcept { return replicated_->traffic(); }
  const std::vector<std::shared_ptr<Device>>& devices() const noexcept { return devices_; }

 private:
  std::unique_ptr<Strategy> inner_;
  std::vector<std::shared_ptr<Device>> devices_;
  const ReplicatedModule* replicated_ = nullptr;  ///< inner_'s network
};

}  // namespace dtrain
