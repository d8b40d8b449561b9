#include "parallel/server/delays.h"

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/checkpoint/json/strict_json.h"

namespace dtrain {
namespace {

using nlohmann::json;

template <class Key>
json counts(const std::map<Key, std::int64_t>& map) {
  json object = json::object();
  for (const auto& [key, count] : map) object[std::to_string(key)] = count;
  return object;
}

template <class Key>
bool read(const json& object, std::map<Key, std::int64_t>& map) {
  for (const auto& [name, count] : object.items()) {
    const auto key = parse_integer(name);
    if (!key) return false;
    map[static_cast<Key>(*key)] = integer_of(count);
  }
  return true;
}

}  // namespace

std::string UpdateDelays::text() const {
  return json{{"behind", counts(behind)}, {"ahead", counts(ahead)}, {"pushes", counts(pushes)}}.dump();
}

std::optional<UpdateDelays> UpdateDelays::parse(const std::string& text) {
  try {
    const json parsed = json::parse(text);
    UpdateDelays delays;
    const bool good = read(parsed.at("behind"), delays.behind) && read(parsed.at("ahead"), delays.ahead) &&
                      read(parsed.at("pushes"), delays.pushes);
    return good ? std::optional(delays) : std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const UsageError&) {  // a number that is no integer
    return std::nullopt;
  }
}

}  // namespace dtrain
