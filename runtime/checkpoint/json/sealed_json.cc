#include "runtime/checkpoint/json/sealed_json.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/checkpoint/input_file.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

// The last member, so that nothing a caller put into the object can come after it.
constexpr std::string_view kChecksumMember = "\"crc32\": \"";

}  // namespace

std::string format_sealed_json(ordered_json object, const std::string& what) {
  object["crc32"] = std::string(kHexDigits, '0');
  std::string text;
  try {
    text = object.dump(2) + "\n";
  } catch (const ordered_json::exception& error) {
    throw UsageError(what + ": expected UTF-8 text, got " + error.what());
  }
  const std::size_t hole = text.rfind(kChecksumMember) + kChecksumMember.size();
  text.replace(hole, kHexDigits, hex32(crc32_with_hole(text, hole)));
  return text;
}

void check_sealed_json(const std::string& text, const std::filesystem::path& path) {
  const std::size_t key = text.rfind(kChecksumMember);
  const std::size_t at = key + kChecksumMember.size();
  if (key == std::string::npos || at + kHexDigits > text.size()) {
    throw DataError(path.string(), static_cast<std::int64_t>(text.size()), "a crc32 at the end",
                    "none; the file is truncated or was not written by dtrain");
  }
  const std::string stored = text.substr(at, kHexDigits);
  const std::string actual = hex32(crc32_with_hole(text, at));
  if (stored != actual) {
    throw DataError(path.string(), static_cast<std::int64_t>(at), "crc32 " + stored, actual);
  }
}

std::string checksum_of_sealed_json(const std::string& text) {
  return text.substr(text.rfind(kChecksumMember) + kChecksumMember.size(), kHexDigits);
}

std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const InputFile file(path);
  if (file.size() > most_bytes) {
    throw DataError(path.string(), -1, fmt::format("a file of at most {} bytes", most_bytes),
                    fmt::format("{} bytes", file.size()));
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  const UniqueFd fd(static_cast<int>(check(
      Sys{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)}, "create " + path.string())));
  write_all(fd.get(), text, path);
  sync_file(fd.get(), path);
}

}  // namespace dtrain
