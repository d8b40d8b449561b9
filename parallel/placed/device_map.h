// Which part of a network is on which device. Pure arithmetic on names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// "conv1=cpu:0": a module, by its name in checkpoints, with all below it.
struct Place {
  std::string module;
  std::string device;

  bool operator==(const Place&) const = default;
};

/// "conv1=cpu:0,fc1=cpu:1". Throws UsageError for text that is not such a list and for a module that comes
/// twice.
std::vector<Place> parse_places(std::string_view text);
std::string text_of(std::span<const Place> places);

/// The device of each part of a network. `parts` has the names of each part's modules ("blocks.0"); a place
/// of "blocks" is one for all of them, and the longest name wins. Parts that no place names are on `home`.
/// Throws UsageError, listing what there is, for a module that the network does not have, and for one that is
/// only some of a part or whose part is placed on two devices: a part is on one device.
std::vector<std::string> devices_of(const std::vector<std::vector<std::string>>& parts,
                                    std::span<const Place> places, const std::string& home);

}  // namespace dtrain
