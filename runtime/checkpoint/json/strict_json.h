// JSON that may come from a damaged or hostile file: duplicate keys, depth and kinds are checked on the way
// in. Not installed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/device/dims.h"

namespace dtrain {

/// Parses `text`, found at `offset_bytes` of `path`. Throws DataError for malformed JSON, a NUL byte
/// anywhere, a key given twice in one object, or nesting deeper than `deepest`.
nlohmann::json parse_strict_json(std::string_view text, const std::filesystem::path& path,
                                 std::int64_t offset_bytes, int deepest);

/// `value`, an integer. Throws UsageError for anything else, fractions and integers that do not fit included:
/// nlohmann would convert them, out of range too.
std::int64_t integer_of(const nlohmann::json& value);

/// `dims` as an array, and back. dims_of_json throws UsageError for too many and for anything but an array of
/// integers.
nlohmann::ordered_json json_of(const Dims& dims);
Dims dims_of_json(const nlohmann::json& list);

/// "a string", "an unsigned number", …: for messages.
std::string kind_of(const nlohmann::json& value);

}  // namespace dtrain
