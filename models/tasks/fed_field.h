// Which field of a sample the built-in networks are fed.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dtrain {

inline constexpr std::string_view kLabelField = "label", kTargetField = "y", kMaskField = "mask";

/// The first of `names` that is not learned, wherever it stands: none of `label`, `y` and `mask`. Throws
/// UsageError, naming `model`, where there is none.
std::size_t first_fed_field(std::span<const std::string> names, std::string_view model);

}  // namespace dtrain
