#include "runtime/checkpoint/checksum.h"

#include <fmt/format.h>
#include <zlib.h>

namespace dtrain {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  if (bytes.empty()) return before;  // zlib takes a null pointer as "start anew"
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string hex32(std::uint32_t value) { return fmt::format("{:08x}", value); }

std::uint32_t crc32_with_hole(std::string_view text, std::size_t hole) noexcept {
  std::uint32_t sum = crc32(bytes_of(text.substr(0, hole)));
  sum = crc32(bytes_of("00000000"), sum);
  return crc32(bytes_of(text.substr(hole + kHexDigits)), sum);
}

}  // namespace dtrain
