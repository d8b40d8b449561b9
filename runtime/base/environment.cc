// Copies the process environment into a map.
#include "runtime/base/environment.h"

#include <unistd.h>

#include <string_view>
#include <utility>

namespace dtrain {

Environment current_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

const std::string* find_variable(const Environment& environment, std::string_view name) {
  const auto entry = environment.find(name);
  return entry == environment.end() || entry->second.empty() ? nullptr : &entry->second;
}

std::string variable_or(const Environment& environment, std::string_view name, std::string otherwise) {
  const std::string* value = find_variable(environment, name);
  return value == nullptr ? std::move(otherwise) : *value;
}

}  // namespace dtrain
