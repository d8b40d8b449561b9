#include "parallel/placed/device_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Parts = std::vector<std::vector<std::string>>;

/// Whether `name` is `module` or below it.
bool is_within(std::string_view name, std::string_view module) {
  return name == module ||
         (name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.');
}

/// The modules that can be placed: those of parts, and what is above several parts.
std::set<std::string> placeable(const Parts& parts) {
  std::set<std::string> names;
  for (const auto& modules : parts) {
    for (const std::string& name : modules) {
      for (std::size_t end = name.find('.'); end != std::string::npos; end = name.find('.', end + 1))
        names.insert(name.substr(0, end));
      names.insert(name);
    }
  }
  return names;
}

void check_known(const Parts& parts, std::span<const Place> places) {
  const std::set<std::string> known = placeable(parts);
  for (const Place& place : places) {
    if (known.contains(place.module)) continue;
    for (const auto& modules : parts) {
      for (const std::string& name : modules) {
        if (!is_within(place.module, name)) continue;
        throw UsageError(
            fmt::format("place: expected whole parts of the network, got '{}', which is inside '{}'",
                        place.module, name));
      }
    }
    throw UsageError(fmt::format("place: expected a module of the network ({}), got '{}'",
                                 fmt::join(known, ", "), place.module));
  }
}

/// Empty: none names it.
std::string device_of(const std::string& name, std::span<const Place> places) {
  const Place* best = nullptr;
  for (const Place& place : places) {
    if (is_within(name, place.module) && (best == nullptr || place.module.size() > best->module.size()))
      best = &place;
  }
  return best == nullptr ? "" : best->device;
}

}  // namespace

std::vector<Place> parse_places(std::string_view text) {
  std::vector<Place> places;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    const auto equals = one.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == one.size()) {
      throw UsageError(fmt::format(
          "place '{}': expected modules with devices, as in conv1=cpu:0,fc1=cpu:1, got '{}'", text, one));
    }
    Place place{std::string(one.substr(0, equals)), std::string(one.substr(equals + 1))};
    if (std::ranges::any_of(places, [&](const Place& other) { return other.module == place.module; }))
      throw UsageError(
          fmt::format("place '{}': expected each module once, got {} twice", text, place.module));
    places.push_back(std::move(place));
    begin = end + 1;
  }
  return places;
}

std::string text_of(std::span<const Place> places) {
  std::string text;
  for (const auto& [module, device] : places)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", module, device);
  return text;
}

std::vector<std::string> devices_of(const Parts& parts, std::span<const Place> places,
                                    const std::string& home) {
  check_known(parts, places);
  std::vector<std::string> devices;
  for (const auto& modules : parts) {
    std::set<std::string> named;
    for (const std::string& name : modules) named.insert(device_of(name, places));
    if (named.size() > 1) named.erase("");
    if (named.size() > 1) {
      throw UsageError(fmt::format("place: expected {} on one device, got {}", fmt::join(modules, " and "),
                                   fmt::join(named, " and ")));
    }
    const std::string device = named.empty() ? "" : *named.begin();
    devices.push_back(device.empty() ? home : device);
  }
  return devices;
}

}  // namespace dtrain
