#include "parallel/data/multi_device_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {

MultiDeviceStrategy::MultiDeviceStrategy(std::unique_ptr<Strategy> inner,
                                         std::vector<std::shared_ptr<Device>> devices)
    : StrategyAround(std::move(inner)), devices_(std::move(devices)) {
  if (devices_.size() < 2)
    throw UsageError(fmt::format("replicas: expected two devices or more, got {}", devices_.size()));
  for (auto device = devices_.begin(); device != devices_.end(); ++device) {
    const auto same = [&](const auto& other) {
      return other->type() == (*device)->type() && other->index() == (*device)->index();
    };
    if (std::any_of(devices_.begin(), device, same))
      throw UsageError("replicas: expected each device once, got " + (*device)->name() + " twice");
  }
}

void MultiDeviceStrategy::prepare(const TrainingParts& parts, const Deadline& deadline) {
  TrainingParts replicated = parts;
  replicated.build = [this, &parts](const std::shared_ptr<Device>& home) -> std::unique_ptr<Module> {
    const std::shared_ptr<Module> learning = parts.build(home);
    std::vector<Replica> replicas;
    for (const auto& device : devices_) {
      replicas.push_back({device, device == home ? learning : std::shared_ptr<Module>(parts.build(device))});
    }
    auto network = std::make_unique<ReplicatedModule>(learning, std::move(replicas));
    replicated_ = network.get();
    return network;
  };
  inner().prepare(replicated, deadline);
}

}  // namespace dtrain
