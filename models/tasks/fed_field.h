// Which field of a sample the built-in networks are fed.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dtrain {

inline constexpr std::string_view kLabelField = "label", kTargetField = "y";

/// The first of `names` that is not learned, wherever it stands: neither `label` nor `y`. Throws UsageError,
/// naming `model`, where there is none.
std::size_t first_fed_field(std::span<const std::string> names, std::string_view model);

}  // namespace dtrain
