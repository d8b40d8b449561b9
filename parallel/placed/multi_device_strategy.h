// Several devices in one process: a strategy inside a strategy. A process with k devices is one rank of any
// other strategy, which trains a network that happens to compute on all of them (replicated_module.h).
#pragma once

#include <memory>
#include <vector>

#include "parallel/placed/replicated_module.h"
#include "parallel/strategy_around.h"

namespace dtrain {

class MultiDeviceStrategy final : public StrategyAround {
 public:
  /// `devices`: one replica each; batches come to the first, losses are computed there. `inner`'s context
  /// has the device on which parameters live and are updated: the first of `devices`, or the host. Throws
  /// UsageError for fewer than two devices and for one that is named twice.
  MultiDeviceStrategy(std::unique_ptr<Strategy> inner, std::vector<std::shared_ptr<Device>> devices);

  void prepare(const ModelFactory& factory, const Deadline& deadline) override;
  /// With what each device held, and what went between them. Steps are not recorded: a recording is of one
  /// device.
  StrategyReport report(std::int64_t steps) const override;

  /// Bytes that crossed between the devices so far; after prepare().
  const ReplicaTraffic& traffic() const noexcept { return replicated_->traffic(); }

 private:
  std::vector<std::shared_ptr<Device>> devices_;
  const ReplicatedModule* replicated_ = nullptr;  ///< inner's network
};

}  // namespace dtrain
