// JSON texts that hold their own CRC-32, as their last member: state.json and the index of shards. Internal
// to runtime/checkpoint.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace dtrain {

/// The text of `object`, to which the member "crc32" is added: indented, its own checksum filled in. Throws
/// UsageError, beginning with `what`, when it is not UTF-8.
std::string format_sealed_json(nlohmann::ordered_json object, const std::string& what);

/// Checks that `text` is as format_sealed_json made it, found at `path`. Throws DataError.
void check_sealed_json(const std::string& text, const std::filesystem::path& path);

/// The 8 hex digits in `text`, which check_sealed_json accepted.
std::string checksum_of_sealed_json(const std::string& text);

/// The whole file `path`, of at most `most_bytes`. Throws DataError, SystemError as InputFile.
std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes);

/// Writes `text` to a new file at `path` and fsyncs it. Throws SystemError.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace dtrain
