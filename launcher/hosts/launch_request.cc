// JSON both ways; what comes from the other side is checked before it is used.
#include "launcher/hosts/launch_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kHello = " hello ", kExit = " exit ", kKilledBy = " killed ", kFailed = " failed ";

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What is no UTF-8, as an argument may be, is replaced rather than refused.
std::string one_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string encode(const LaunchRequest& request) {
  return one_line(
      {{"folder", request.folder}, {"arguments", request.arguments}, {"environment", request.environment}});
}

LaunchRequest parse_request(const std::string& line) {
  const Json value = Json::parse(line, nullptr, false);
  const auto is_text = [](const Json& each) { return each.is_string(); };
  const bool good = value.is_object() && value.contains("arguments") && value["arguments"].is_array() &&
                    std::all_of(value["arguments"].begin(), value["arguments"].end(), is_text) &&
                    value.contains("environment") && value["environment"].is_object() &&
                    std::all_of(value["environment"].begin(), value["environment"].end(), is_text);
  if (!good)
    throw UsageError(
        "--from-stdin: expected what dtrain-launch --hosts sends, got something else; people start a job "
        "with dtrain-launch --hosts");
  LaunchRequest request;
  request.folder = text_of(value, "folder");
  request.arguments = value["arguments"].get<std::vector<std::string>>();
  for (const auto& [name, text] : value["environment"].items())
    request.environment[name] = text.get<std::string>();
  return request;
}

std::string greeting_line(const std::string& mark, const ProxyGreeting& greeting) {
  return mark + std::string(kHello) +
         one_line({{"version", greeting.version},
                   {"reached_at", greeting.reached_at},
                   {"reached_from", greeting.reached_from}});
}

std::string exit_line(const std::string& mark, int exit_code) {
  return mark + std::string(kExit) + std::to_string(exit_code);
}

std::string killed_line(const std::string& mark, int signal) {
  return mark + std::string(kKilledBy) + std::to_string(signal);
}

std::string failure_line(const std::string& mark, const std::string& why) {
  return mark + std::string(kFailed) + why;
}

std::optional<ProxyLine> parse_proxy_line(const std::string& mark, std::string_view line) {
  const std::size_t at = line.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  ProxyLine result;
  result.before = line.substr(0, at);
  const std::string_view rest = line.substr(at + mark.size());
  if (rest.starts_with(kHello)) {
    const Json value = Json::parse(rest.substr(kHello.size()), nullptr, false);
    if (!value.is_object()) return std::nullopt;
    result.greeting = ProxyGreeting{text_of(value, "version"), text_of(value, "reached_at"),
                                    text_of(value, "reached_from")};
  } else if (rest.starts_with(kExit) || rest.starts_with(kKilledBy)) {
    const bool killed = rest.starts_with(kKilledBy);
    const auto number = parse_integer(rest.substr((killed ? kKilledBy : kExit).size()));
    if (!number) return std::nullopt;
    (killed ? result.killed_by : result.exit_code) = static_cast<int>(*number);
  } else if (rest.starts_with(kFailed)) {
    result.failure = std::string(rest.substr(kFailed.size()));
  } else {
    return std::nullopt;
  }
  return result;
}

std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace dtrain::launcher
