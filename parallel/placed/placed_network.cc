#include "parallel/placed/placed_network.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/placed/placed_module.h"
#include "parallel/schedule/stage_actions.h"

namespace dtrain {

std::vector<std::vector<std::string>> module_names(const std::vector<LayerUnit>& chain) {
  std::vector<std::vector<std::string>> names;
  for (const LayerUnit& part : chain) {
    names.emplace_back();
    for (const auto& [name, module] : part.modules) names.back().push_back(name);
  }
  return names;
}

PlacedChain build_placed(const ModelFactory& factory, const std::vector<std::string>& devices,
                         const NamedDevices& all) {
  PlacedChain placed{{}, devices};
  placed.chain.resize(devices.size());
  for (const auto& [name, device] : all) {
    if (std::ranges::find(devices, name) == devices.end()) continue;
    std::vector<LayerUnit> chain = chain_of(factory, device);
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (devices[i] == name) placed.chain[i] = place(std::move(chain[i]), device);
    }
  }
  return placed;
}

std::unique_ptr<Module> network_of(PlacedChain placed, const std::shared_ptr<Device>& home) {
  placed.chain.back() = brought_to(std::move(placed.chain.back()), home);
  return std::make_unique<StageModule>(std::vector<Chunk>{std::move(placed.chain)});
}

std::vector<std::string> plan_devices(const std::vector<LayerUnit>& chain, std::span<const double> times,
                                      std::span<const std::string> devices) {
  double time = 0, elements = 0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    time += times[i];
    elements += static_cast<double>(parameter_count(chain[i]));
  }
  std::vector<double> costs;
  for (std::size_t i = 0; i < chain.size(); ++i)
    costs.push_back(times[i] / time + static_cast<double>(parameter_count(chain[i])) / elements);
  const auto ends = cut_evenly(costs, static_cast<int>(devices.size()));
  std::vector<std::string> proposed;
  for (std::size_t device = 0; device < ends.size(); ++device) proposed.resize(ends[device], devices[device]);
  return proposed;
}

}  // namespace dtrain
