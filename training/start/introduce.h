// What a run says of itself at its beginning.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/device/device.h"
#include "training/start/initial_network.h"

namespace dtrain {

/// The text of a RunIntroduction, for rank 0.
std::string introduction_of(const TrainConfig& config, const InitialNetwork& initial,
                            const TrainingData& data, const Communicator& communicator, const Device& device,
                            const std::filesystem::path& folder);

/// What else there is to know: what options did to the network, and what is particular about the device.
std::vector<std::string> notes_of(const TrainConfig& config, const InitialNetwork& initial,
                                  const Device& device, const Environment& environment);

}  // namespace dtrain
