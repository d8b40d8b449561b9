// JSON that may come from a damaged or hostile file: duplicate keys, depth and kinds are checked on the way
// in. Internal to runtime/checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace dtrain {

/// Parses `text`, found at `offset_bytes` of `path`. Throws DataError for malformed JSON, a NUL byte
/// anywhere, a key given twice in one object, or nesting deeper than `deepest`.
nlohmann::json parse_strict_json(std::string_view text, const std::filesystem::path& path,
                                 std::int64_t offset_bytes, int deepest);

/// "a string", "an unsigned number", …: for messages.
std::string kind_of(const nlohmann::json& value);

}  // namespace dtrain
