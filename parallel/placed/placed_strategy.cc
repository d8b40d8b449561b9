#include "parallel/placed/placed_strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/share.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// A place for each module of each part.
std::vector<Place> places_of(const PlacedChain& placed) {
  std::vector<Place> places;
  const auto names = module_names(placed.chain);
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const std::string& name : names[i]) places.push_back({name, placed.devices[i]});
  }
  return places;
}

// What each part holds, its time, and the places as parse_places() reads them.
std::string describe(const PlacedChain& placed, std::span<const double> times) {
  const auto names = module_names(placed.chain);
  std::string text = fmt::format("{:<24} {:<8} {:>14} {:>12}", "part", "device", "parameters", "a pass");
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("\n{:<24} {:<8} {:>10.2f} MiB {:>12}", fmt::format("{}", fmt::join(names[i], ", ")),
                        placed.devices[i],
                        4.0 * static_cast<double>(parameter_count(placed.chain[i])) / (1 << 20),
                        fmt::format("{:.2f} ms", 1e3 * times[i]));
  }
  return fmt::format("{}\nplaces: {}", text, text_of(places_of(placed)));
}

void check_devices(std::span<const Place> places, const PlaceOptions& options) {
  for (const Place& place : places) {
    if (std::ranges::find(options.devices, place.device) != options.devices.end()) continue;
    throw UsageError(fmt::format("place: expected one of the devices there are ({}), got {} for {}",
                                 fmt::join(options.devices, ", "), place.device, place.module));
  }
}

}  // namespace

PlacedStrategy::PlacedStrategy(Communicator& communicator, std::unique_ptr<Strategy> inner,
                               PlaceOptions options, NamedDevices devices)
    : StrategyAround("placed", std::move(inner)),
      communicator_(communicator),
      options_(std::move(options)),
      devices_(std::move(devices)) {
  check_devices(options_.places, options_);
}

// Times differ from rank to rank; the map must not.
std::vector<std::string> PlacedStrategy::planned_devices(const ModelFactory& factory,
                                                         std::vector<double>& times,
                                                         const Deadline& deadline) {
  const auto& home = devices_.at(options_.devices.front());
  const std::vector<LayerUnit> chain = chain_of(factory, home);
  std::string text;
  if (communicator_.rank() == 0) {
    if (!factory.example) throw UsageError("place: expected an example to measure the parts with, got none");
    times = times_of(chain, factory.example(home), factory.precision);
    text = fmt::format("{}", fmt::join(plan_devices(chain, times, options_.devices), ","));
  }
  text = broadcast_text(communicator_, text, deadline);
  std::vector<std::string> devices;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    devices.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return devices;
}

void PlacedStrategy::prepare(const ModelFactory& factory, const Deadline& deadline) {
  const std::string& home = options_.devices.front();
  std::vector<double> times;
  const std::vector<std::string> devices =
      options_.places.empty()
          ? planned_devices(factory, times, deadline)
          : devices_of(module_names(chain_of(factory, devices_.at(home))), options_.places, home);
  ModelFactory placed = factory;
  placed.build = [&](const std::shared_ptr<Device>& on) -> std::unique_ptr<Module> {
    PlacedChain built = build_placed(factory, devices, devices_);
    if (!times.empty()) plan_ = describe(built, times);
    return network_of(std::move(built), on);
  };
  StrategyAround::prepare(placed, deadline);
}

StrategyReport PlacedStrategy::report(std::int64_t steps) const {
  StrategyReport report = StrategyAround::report(steps);
  report.plan = plan_;
  return report;
}

}  // namespace dtrain
