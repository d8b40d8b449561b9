// A network whose parts are on different devices of this process.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/placed/device_map.h"
#include "parallel/schedule/stage_choice.h"
#include "parallel/schedule/stage_module.h"
#include "parallel/strategy.h"

namespace dtrain {

/// The devices of a process by the names that users give them.
using NamedDevices = std::map<std::string, std::shared_ptr<Device>, std::less<>>;

/// A network's parts, and the device of each.
struct PlacedChain {
  std::vector<LayerUnit> chain;  ///< the modules of each on its device, where it computes
  std::vector<std::string> devices;
};

/// The names of the modules of each part.
std::vector<std::vector<std::string>> module_names(const std::vector<LayerUnit>& chain);

/// Builds the network with its parts where `devices` (one name of `all` each) says. It exists whole on each
/// of those devices for a moment, for the sake of its initial weights.
PlacedChain build_placed(const ModelFactory& factory, const std::vector<std::string>& devices,
                         const NamedDevices& all);

/// The parts one after the other as a network of the names that they have in the whole; its result is brought
/// to `home`.
std::unique_ptr<Module> network_of(PlacedChain placed, const std::shared_ptr<Device>& home);

/// Puts parts on devices so that each device has as much to do and to hold as the others: the parts in their
/// order, cut into as many runs as there are devices. A part's cost is its share of the time that `times`
/// gives (seconds, forward and backward) and, weighing as much, its share of the parameters.
std::vector<std::string> plan_devices(const std::vector<LayerUnit>& chain, std::span<const double> times,
                                      std::span<const std::string> devices);

}  // namespace dtrain
