// nlohmann keeps the last of two equal keys without a word; the parser callback sees both.
#include "runtime/checkpoint/json/strict_json.h"

#include <cstdint>
#include <set>
#include <vector>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using nlohmann::json;

class KeyWatch {
 public:
  KeyWatch(const std::string& path, std::int64_t offset_bytes, int deepest)
      : path_(path), offset_bytes_(offset_bytes), deepest_(deepest) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= deepest_)
        fail("JSON nested at most " + std::to_string(deepest_) + " deep", "deeper nesting");
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) fail("each key once", "'" + key + "' twice");
    }
    return true;
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    throw DataError(path_, offset_bytes_, expected, found);
  }

  std::string path_;
  std::int64_t offset_bytes_;
  int deepest_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

json parse_strict_json(std::string_view text, const std::filesystem::path& path, std::int64_t offset_bytes,
                       int deepest) {
  // The parser takes a NUL for the end of its input: whatever came after it would go unread.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw DataError(path.string(), offset_bytes + static_cast<std::int64_t>(nul), "JSON", "a NUL byte");
  }
  KeyWatch watch(path.string(), offset_bytes, deepest);
  try {
    return json::parse(text.begin(), text.end(), std::ref(watch));
  } catch (const json::parse_error& error) {
    throw DataError(path.string(), offset_bytes + static_cast<std::int64_t>(error.byte), "JSON",
                    error.what());
  } catch (const json::exception& error) {
    throw DataError(path.string(), offset_bytes, "JSON", error.what());
  }
}

std::int64_t integer_of(const json& value) {
  const bool fits =
      value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT64_MAX : value.is_number_integer();
  if (!fits) throw UsageError("expected an integer, got " + value.dump(-1, ' ', true).substr(0, 80));
  return value.get<std::int64_t>();
}

nlohmann::ordered_json json_of(const Dims& dims) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::int64_t value : dims) list.push_back(value);
  return list;
}

Dims dims_of_json(const json& list) {
  if (!list.is_array()) throw UsageError("expected an array of integers, got " + kind_of(list));
  Dims dims;
  for (const json& value : list) dims.push_back(integer_of(value));
  return dims;
}

std::string kind_of(const json& value) {
  if (value.is_number_unsigned()) return "an unsigned number";
  if (value.is_string()) return "a string";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return "a " + std::string(value.type_name());
}

}  // namespace dtrain
