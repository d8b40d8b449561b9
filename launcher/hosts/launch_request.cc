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

// Arguments are bytes and need not be UTF-8, which JSON's texts are: each byte becomes the character of that
// number.
std::string characters_of(std::string_view bytes) {
  std::string characters;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte < 0x80) {
      characters += each;
    } else {
      characters += static_cast<char>(0xc0 | (byte >> 6));
      characters += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return characters;
}

std::string bytes_of(std::string_view characters) {
  std::string bytes;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    const auto first = static_cast<unsigned char>(characters[i]);
    const bool two = (first == 0xc2 || first == 0xc3) && i + 1 < characters.size();
    bytes += two ? static_cast<char>((first << 6) | (characters[++i] & 0x3f)) : characters[i];
  }
  return bytes;
}

// What is no UTF-8 is replaced rather than refused.
std::string one_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string encode(const LaunchRequest& request) {
  Json value{{"folder", characters_of(request.folder)},
             {"arguments", Json::array()},
             {"environment", Json::object()}};
  for (const std::string& argument : request.arguments) value["arguments"].push_back(characters_of(argument));
  for (const auto& [name, text] : request.environment)
    value["environment"][characters_of(name)] = characters_of(text);
  return one_line(value);
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
  request.folder = bytes_of(text_of(value, "folder"));
  for (const Json& argument : value["arguments"])
    request.arguments.push_back(bytes_of(argument.get_ref<const std::string&>()));
  for (const auto& [name, text] : value["environment"].items())
    request.environment[bytes_of(name)] = bytes_of(text.get_ref<const std::string&>());
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
