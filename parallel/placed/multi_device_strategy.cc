#include "parallel/placed/multi_device_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

MultiDeviceStrategy::MultiDeviceStrategy(std::unique_ptr<Strategy> inner,
                                         std::vector<std::shared_ptr<Device>> devices)
    : StrategyAround("replicas", std::move(inner)), devices_(std::move(devices)) {
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

void MultiDeviceStrategy::prepare(const ModelFactory& factory, const Deadline& deadline) {
  ModelFactory replicated = factory;
  replicated.build = [this, &factory](const std::shared_ptr<Device>& home) -> std::unique_ptr<Module> {
    const std::shared_ptr<Module> learning = factory.build(home);
    std::vector<Replica> replicas;
    for (const auto& device : devices_) {
      replicas.push_back(
          {device, device == home ? learning : std::shared_ptr<Module>(factory.build(device))});
    }
    auto network = std::make_unique<ReplicatedModule>(learning, std::move(replicas));
    replicated_ = network.get();
    return network;
  };
  StrategyAround::prepare(replicated, deadline);
}

StrategyReport MultiDeviceStrategy::report(std::int64_t steps) const {
  StrategyReport report = StrategyAround::report(steps);
  std::string& text = report.stats;
  if (!text.empty()) text += '\n';
  for (const auto& device : devices_) {
    text += fmt::format("{}:{} held at most {:.1f} MiB\n", device->type() == DeviceType::cpu ? "cpu" : "cuda",
                        device->index(), mib(device->peak_allocated_bytes()));
  }
  const auto each = [&](std::uint64_t bytes) {
    return mib(bytes) / static_cast<double>(std::max<std::int64_t>(steps, 1));
  };
  text += fmt::format(
      "between devices in a step: {:.2f} MiB of parameters, {:.2f} of gradients, {:.2f} of "
      "activations",
      each(traffic().parameters), each(traffic().gradients), each(traffic().activations));
  return report;
}

}  // namespace dtrain
