#include "cluster/net/protection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"none", "authenticate", "encrypt"};

}  // namespace

std::string_view name_of(Protection protection) noexcept {
  return kNames[static_cast<std::size_t>(protection)];
}

Protection protection_named(std::string_view name, std::string_view what) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<Protection>(found - kNames.begin());
  throw UsageError(fmt::format("{}: expected none, authenticate or encrypt, got '{}'", what, name));
}

}  // namespace dtrain
