#include "parallel/placed/placed_network.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/placed/placed_module.h"
#include "parallel/schedule/stage_actions.h"
#include "runtime/base/error.h"

namespace dtrain {

std::vector<std::vector<std::string>> module_names(const std::vector<LayerUnit>& chain) {
  std::vector<std::vector<std::string>> names;
  for (const LayerUnit& part : chain) {
    names.emplace_back();
    for (const auto& [name, module] : part.modules) names.back().push_back(name);
  }
  return names;
}

namespace {

/// A weight that parts have in common would be one of its own on each of their devices.
void check_ties(const std::vector<LayerUnit>& chain, const std::vector<std::string>& devices) {
  struct Use {
    const Tensor tensor;
    std::string name;
    std::size_t part;
  };
  std::vector<Use> uses;
  for (std::size_t part = 0; part < chain.size(); ++part) {
    for (const auto& [path, module] : chain[part].modules) {
      for (const auto& [name, tensor] : module->named_parameters()) {
        const auto same = std::ranges::find_if(
            uses, [&, &weight = tensor](const Use& use) { return use.tensor.shares_storage(weight); });
        if (same == uses.end()) {
          uses.push_back({tensor, path + "." + name, part});
        } else if (devices[same->part] != devices[part]) {
          throw UsageError(
              fmt::format("network on devices: expected parts that share a weight on one device, got {} on "
                          "{} and {}.{} on "
                          "{}; put both on one, or use a model whose weights are not tied",
                          same->name, devices[same->part], path, name, devices[part]));
        }
      }
    }
  }
}

}  // namespace

PlacedChain build_placed(const ModelFactory& factory, const std::vector<std::string>& devices,
                         const NamedDevices& all) {
  PlacedChain placed{{}, devices};
  placed.chain.resize(devices.size());
  for (const auto& [name, device] : all) {
    if (std::ranges::find(devices, name) == devices.end()) continue;
    std::vector<LayerUnit> chain = chain_of(factory, device);
    check_ties(chain, devices);
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
