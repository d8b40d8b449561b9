// Environment variables as a value, so that whatever depends on them is a pure function tests can feed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// Names to values; std::less<> so that string views look up without a copy.
using Environment = std::map<std::string, std::string, std::less<>>;

/// This process's environment, copied. Not to be called while another thread changes it.
Environment current_environment();

/// The value of `name` when it is set and not empty. The pointer lives as long as the map's entry.
const std::string* find_variable(const Environment& environment, std::string_view name);

/// The value of `name`, or `otherwise` when it is unset or empty.
std::string variable_or(const Environment& environment, std::string_view name, std::string otherwise);

}  // namespace dtrain
