#include "models/tasks/fed_field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {

std::size_t first_fed_field(std::span<const std::string> names, std::string_view model) {
  const auto found = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name != kLabelField && name != kTargetField && name != kMaskField;
  });
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw UsageError(fmt::format(
      "{}: expected samples with a field to feed to the network in addition to {}, {} and {}, got {}", model,
      kLabelField, kTargetField, kMaskField, fmt::join(names, ", ")));
}

}  // namespace dtrain
