#include "runtime/metrics/report/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepest = 4;                // of the file, its "fields", a field, its shape
constexpr std::size_t kMostElements = 16;  // of an array: longer ones are left out

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

/// `value`, an object or an array, with the scalars, objects and short arrays in it, down to `depth` of them
/// in each other.
ordered_json shallow(const ordered_json& value, int depth) {
  const auto is_kept = [&](const ordered_json& inner) {
    return !inner.is_structured() || (depth > 1 && (inner.is_object() || inner.size() <= kMostElements));
  };
  const auto kept_of = [&](const ordered_json& inner) {
    return inner.is_structured() ? shallow(inner, depth - 1) : inner;
  };
  ordered_json kept = value.is_array() ? ordered_json::array() : ordered_json::object();
  for (const auto& [name, inner] : value.items()) {
    if (!is_kept(inner)) continue;
    if (value.is_array()) {
      kept.push_back(kept_of(inner));
    } else {
      kept[name] = kept_of(inner);
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
