// CRC-32 (zlib's) as it is stored in checkpoints: 8 lower-case hex digits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dtrain {

/// CRC-32 of `bytes`, continuing from `before`.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// 8 lower-case hex digits.
std::string hex32(std::uint32_t value);

/// CRC-32 of `text` with the 8 characters at `hole` taken as zeros ('0'): how a text can hold its own
/// checksum.
std::uint32_t crc32_with_hole(std::string_view text, std::size_t hole) noexcept;

/// Length of a checksum in a text.
inline constexpr std::size_t kHexDigits = 8;

}  // namespace dtrain
