// How the state of loss scaling stands among a checkpoint's entries: "scaler.NAME".
#pragma once

#include <map>
#include <string>

namespace dtrain {

inline const std::string kScalerPrefix = "scaler.";

/// Of `entries`, those of the scaler, under its own names.
inline std::map<std::string, std::string> scaler_state(const std::map<std::string, std::string>& entries) {
  std::map<std::string, std::string> state;
  for (const auto& [name, value] : entries) {
    if (name.starts_with(kScalerPrefix)) state.emplace(name.substr(kScalerPrefix.size()), value);
  }
  return state;
}

}  // namespace dtrain
