// How what decides about updates stands among a checkpoint's entries: "scaler.NAME" of loss scaling, and of
// how many weights a mean is.
#pragma once

#include <map>
#include <string>

#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/optim/weight_average.h"

namespace dtrain {

inline const std::string kScalerPrefix = "scaler.", kAveragedCount = "averaged.count";

/// Of `scaler` and `average`, either of which may be null.
inline std::map<std::string, std::string> update_entries(const GradScaler* scaler,
                                                         const WeightAverage* average) {
  std::map<std::string, std::string> entries;
  if (scaler != nullptr) {
    for (const auto& [name, value] : scaler->state()) entries.emplace(kScalerPrefix + name, value);
  }
  if (average != nullptr && average->count() > 0)
    entries.emplace(kAveragedCount, std::to_string(average->count()));
  return entries;
}

/// Gives both back what is theirs of `entries`.
inline void load_update_entries(const std::map<std::string, std::string>& entries, GradScaler* scaler,
                                WeightAverage* average) {
  std::map<std::string, std::string> state;
  for (const auto& [name, value] : entries) {
    if (name.starts_with(kScalerPrefix)) state.emplace(name.substr(kScalerPrefix.size()), value);
  }
  if (scaler != nullptr) scaler->load_state(state);
  const auto count = entries.find(kAveragedCount);
  if (average != nullptr) average->set_count(count != entries.end() ? std::stoll(count->second) : 0);
}

}  // namespace dtrain
