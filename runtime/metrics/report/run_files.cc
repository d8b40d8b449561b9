#include "runtime/metrics/report/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepest = 3;  // of the file, its "options", an option

ordered_json parse_object(const std::string& text, const std::string& path) {
  ordered_json json;
  try {
    json = ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto at = std::min<std::size_t>(error.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw DataError(path, static_cast<std::int64_t>(at), "JSON",
                    fmt::format("something else in line {}", line));
  } catch (const nlohmann::json::exception& error) {  // a number too large for a double
    throw DataError(path, -1, "JSON", error.what());
  }
  if (!json.is_object()) throw DataError(path, 0, "a JSON object", json.type_name());
  return json;
}

/// `value`, an object, with the scalars and the objects in it, down to `depth` objects in each other.
ordered_json shallow(const ordered_json& value, int depth) {
  ordered_json kept = ordered_json::object();
  for (const auto& [name, inner] : value.items()) {
    if (!inner.is_structured()) {
      kept[name] = inner;
    } else if (inner.is_object() && depth > 1) {
      kept[name] = shallow(inner, depth - 1);
    }
  }
  return kept;
}

}  // namespace

std::string object_in(const std::string& text, const std::string& path) {
  return shallow(parse_object(text, path), kDeepest).dump();
}

LogFacts log_facts(std::string_view log, std::size_t most) {
  LogFacts facts;
  while (!log.empty()) {
    std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (line.find(": warning: ") != std::string_view::npos ||
        line.find(": error: ") != std::string_view::npos) {
      if (line.starts_with("dtrain: ")) line.remove_prefix(std::string_view("dtrain: ").size());
      facts.troubles.emplace_back(line.substr(0, 500));
      if (facts.troubles.size() > most) facts.troubles.erase(facts.troubles.begin());
      continue;
    }
    // "dtrain: rank 0: rank 0 of 2, pid 4711, cpu (…), backend tcp"
    constexpr std::string_view kStart = "rank 0 of ";
    const std::size_t at = line.find(kStart), pid = line.find(", pid ");
    if (at == std::string_view::npos || pid == std::string_view::npos || pid < at) continue;
    const std::string workers(line.substr(at + kStart.size(), pid - at - kStart.size()));
    const std::size_t rest = line.find(", ", pid + 2);
    facts.starts.push_back(fmt::format("{} worker{}{}", workers, workers == "1" ? "" : "s",
                                       rest == std::string_view::npos ? "" : line.substr(rest)));
  }
  return facts;
}

}  // namespace dtrain
