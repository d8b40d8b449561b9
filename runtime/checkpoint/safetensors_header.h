// The header of a safetensors file as values, and the rules it must obey. Pure; internal to
// runtime/checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/safetensors.h"

namespace dtrain {

inline constexpr std::uint64_t kSafetensorsPrefixBytes = 8;
inline constexpr std::string_view kHeaderChecksumKey = "dtrain.header_crc32";
inline constexpr std::string_view kTensorChecksumPrefix = "dtrain.crc32.";
inline constexpr std::string_view kPartPrefix = "dtrain.part.";
inline constexpr std::string_view kReservedMetadataPrefix = "dtrain.";

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by position in the file
  SafetensorsMetadata metadata;           ///< without the reserved keys
  std::string crc32;                      ///< of the header; empty when the file has none
};

/// The format's own names of element types ("F32"), and back; nothing for one that is not ours.
std::string_view safetensors_name(DType dtype);
std::optional<DType> safetensors_dtype(std::string_view text);

/// The entries of `tensors` in file order, offsets set, checksums empty; `order[i]` is the index in
/// `tensors`. Throws UsageError for tensors that cannot be written.
std::vector<SafetensorsEntry> lay_out_tensors(std::span<const NamedView> tensors,
                                              std::vector<std::size_t>& order);

/// The first bytes of a file: length prefix and JSON, padded to 8, the header's own checksum filled in.
/// Throws UsageError when it is over the limit or not UTF-8.
std::string format_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                      const SafetensorsMetadata& metadata);

/// What the metadata say of an entry that is a part, as JSON, and back. parse_part throws DataError.
std::string format_part(const SafetensorsEntry& entry);
void parse_part(const std::string& text, SafetensorsEntry& entry, const std::filesystem::path& path);

/// The checksum stored in `head`, as format_safetensors_header made it.
std::string header_checksum(std::string_view head);

/// Parses and checks `head` (prefix and JSON) of a file whose values take `data_bytes`. Throws DataError.
SafetensorsHeader parse_safetensors_header(std::string_view head, std::uint64_t data_bytes,
                                           const std::filesystem::path& path, Verify verify);

}  // namespace dtrain
