// A network over several devices of one process, part by part: model parallelism without a second process.
// Any strategy of whole networks works between processes that do so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/placed/placed_network.h"
#include "parallel/strategy_around.h"

namespace dtrain {

/// Where the parts of a network are to be.
struct PlaceOptions {
  std::vector<std::string> devices;  ///< names of the devices there are; batches come to the first
  std::vector<Place> places;         ///< empty: the devices are proposed by time and memory
};

class PlacedStrategy final : public StrategyAround {
 public:
  /// `inner` is given a network whose parts are on `devices`, by name; its context has the first of
  /// options.devices, where outputs are brought.
  PlacedStrategy(Communicator& communicator, std::unique_ptr<Strategy> inner, PlaceOptions options,
                 NamedDevices devices);

  /// Collective where devices are proposed: all ranks take rank 0's proposal. Throws UsageError for a network
  /// that is no chain, places that do not fit it (devices_of), more devices than parts, and where a proposal
  /// is asked for and there is no example to measure.
  void prepare(const ModelFactory& factory, const Deadline& deadline) override;
  /// With, where devices were proposed, a table of the parts, and the places as parse_places() reads them.
  /// Steps are not recorded: a recording is of one device.
  StrategyReport report(std::int64_t steps) const override;

 private:
  /// A device for each part, and `times` of them in seconds on rank 0, which measures.
  std::vector<std::string> planned_devices(const ModelFactory& factory, std::vector<double>& times,
                                           const Deadline& deadline);

  Communicator& communicator_;
  PlaceOptions options_;
  NamedDevices devices_;
  std::string plan_;
};

}  // namespace dtrain
