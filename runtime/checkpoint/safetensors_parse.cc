// From the header of a safetensors file to tensors. Nothing in the file is trusted: sizes are checked before
// they are used and arithmetic cannot wrap.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/checkpoint/json/strict_json.h"
#include "runtime/checkpoint/safetensors_header.h"

namespace dtrain {
namespace {

constexpr std::pair<std::string_view, DType> kDtypeNames[] = {
    {"F32", DType::f32}, {"F64", DType::f64},     {"BF16", DType::bf16}, {"F16", DType::f16},
    {"I64", DType::i64}, {"I32", DType::i32},     {"I16", DType::i16},   {"I8", DType::i8},
    {"U8", DType::u8},   {"BOOL", DType::boolean}};

using nlohmann::json;

constexpr int kHeaderDepth = 3;  // header → tensor → shape

class HeaderParser {
 public:
  HeaderParser(std::string_view head, std::uint64_t data_bytes, const std::filesystem::path& path)
      : head_(head), data_bytes_(data_bytes), path_(path) {}

  SafetensorsHeader parse(Verify verify) {
    const std::string_view text = head_.substr(kSafetensorsPrefixBytes);
    if (text.empty() || text.front() != '{') fail("a header that begins with '{'", "something else");
    const json header = parse_strict_json(text, path_, kSafetensorsPrefixBytes, kHeaderDepth);
    if (!header.is_object()) fail("a header object", kind_of(header));
    SafetensorsHeader result;
    SafetensorsMetadata metadata;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        metadata = parse_metadata(value);
      } else {
        result.entries.push_back(parse_entry(name, value));
      }
    }
    check_offsets(result.entries);
    take_checksums(metadata, result, verify);
    check_own_checksum(result.crc32);
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    throw DataError(path_.string(), kSafetensorsPrefixBytes, expected, found);
  }

  SafetensorsMetadata parse_metadata(const json& value) const {
    if (!value.is_object()) fail("__metadata__ to be an object", kind_of(value));
    SafetensorsMetadata metadata;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("metadata '" + key + "' to be a string", kind_of(text));
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  SafetensorsEntry parse_entry(const std::string& name, const json& value) const {
    const std::string where = "tensor '" + name + "'";
    if (name.empty()) fail("tensors with names", "an empty name");
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      fail(where + " with dtype, shape and data_offsets", value.dump(-1, ' ', true).substr(0, 80));
    }
    SafetensorsEntry entry;
    entry.name = entry.tensor = name;
    entry.dtype = parse_dtype(where, value["dtype"]);
    entry.shape = parse_shape(where, value["shape"]);
    const auto offsets = parse_numbers(where + " data_offsets", value["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail(where + " with data_offsets [begin, end]", value["data_offsets"].dump());
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    const std::uint64_t bytes = checked_bytes(where, entry);
    if (entry.end - entry.begin != bytes) {
      fail(fmt::format("{} of {} bytes (shape {} × {} bytes)", where, bytes, entry.shape.to_string(),
                       size_of(entry.dtype)),
           fmt::format("data_offsets {} … {}", entry.begin, entry.end));
    }
    return entry;
  }

  DType parse_dtype(const std::string& where, const json& value) const {
    const auto dtype =
        value.is_string() ? safetensors_dtype(value.get_ref<const std::string&>()) : std::nullopt;
    if (dtype) return *dtype;
    fail(where + " with dtype F32, F64, BF16, F16, I64, I32, I16, I8, U8 or BOOL",
         value.dump(-1, ' ', true).substr(0, 80));
  }

  std::vector<std::uint64_t> parse_numbers(const std::string& where, const json& value) const {
    if (!value.is_array()) fail(where + " to be an array", kind_of(value));
    std::vector<std::uint64_t> numbers;
    for (const auto& number : value) {
      if (!number.is_number_unsigned()) fail(where + " of unsigned numbers", kind_of(number));
      numbers.push_back(number.get<std::uint64_t>());
    }
    return numbers;
  }

  Dims parse_shape(const std::string& where, const json& value) const {
    const auto extents = parse_numbers(where + " shape", value);
    if (extents.size() > static_cast<std::size_t>(kMaxRank)) {
      fail(fmt::format("{} of at most {} dimensions", where, kMaxRank), std::to_string(extents.size()));
    }
    Dims shape;
    for (const std::uint64_t extent : extents) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(where + " with extents below 2^63", std::to_string(extent));
      }
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    return shape;
  }

  std::uint64_t checked_bytes(const std::string& where, const SafetensorsEntry& entry) const {
    std::uint64_t bytes = size_of(entry.dtype);
    for (const std::int64_t extent : entry.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes) ||
          bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(where + " of fewer than 2^63 bytes", "shape " + entry.shape.to_string());
      }
    }
    return bytes;
  }

  // Without gaps or overlaps from 0 to the end of the file: nothing can hide and nothing is outside.
  void check_offsets(std::vector<SafetensorsEntry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t at = 0;
    for (const auto& entry : entries) {
      if (entry.begin != at) {
        fail(fmt::format("tensor '{}' to begin at {}", entry.name, at), std::to_string(entry.begin));
      }
      at = entry.end;
    }
    if (at != data_bytes_) {
      throw DataError(path_.string(), static_cast<std::int64_t>(head_.size()),
                      fmt::format("{} bytes of values", at), std::to_string(data_bytes_));
    }
  }

  void take_checksums(SafetensorsMetadata& metadata, SafetensorsHeader& result, Verify verify) const {
    const auto take = [&](const std::string& key) {
      const auto found = metadata.find(key);
      if (found == metadata.end()) {
        if (verify == Verify::required) fail("metadata '" + key + "'", "none");
        return std::string();
      }
      std::string value = std::move(found->second);
      metadata.erase(found);
      return value;
    };
    result.crc32 = take(std::string(kHeaderChecksumKey));
    for (auto& entry : result.entries) {
      entry.crc32 = take(std::string(kTensorChecksumPrefix) + entry.name);
      const auto part = metadata.find(std::string(kPartPrefix) + entry.name);
      if (part == metadata.end()) continue;
      parse_part(part->second, entry, path_);
      metadata.erase(part);
    }
    for (const auto& [key, value] : metadata) {
      if (key.starts_with(kReservedMetadataPrefix))
        fail("no metadata '" + key + "'", "it without its tensor");
    }
    result.metadata = std::move(metadata);
  }

  void check_own_checksum(const std::string& stored) const {
    if (stored.empty()) return;
    const std::string key = "\"" + std::string(kHeaderChecksumKey) + "\":\"";
    const std::size_t at = head_.find(key);
    if (at == std::string_view::npos || at + key.size() + kHexDigits > head_.size()) {
      fail("the header's checksum as it was written", "it rewritten");
    }
    const std::string actual = hex32(crc32_with_hole(head_, at + key.size()));
    if (actual != stored) fail("header crc32 " + stored, actual);
  }

  std::string_view head_;
  std::uint64_t data_bytes_;
  const std::filesystem::path& path_;
};

}  // namespace

std::optional<DType> safetensors_dtype(std::string_view text) {
  for (const auto& [name, dtype] : kDtypeNames) {
    if (text == name) return dtype;
  }
  return std::nullopt;
}

std::string_view safetensors_name(DType dtype) {
  for (const auto& [name, known] : kDtypeNames) {
    if (known == dtype) return name;
  }
  return "?";
}

void parse_part(const std::string& text, SafetensorsEntry& entry, const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) {
    throw DataError(path.string(), kSafetensorsPrefixBytes, "what tensor '" + entry.name + "' is a part of",
                    why);
  };
  const json parsed = parse_strict_json(text, path, kSafetensorsPrefixBytes, 2);
  try {
    entry.tensor = parsed.at("tensor").get<std::string>();
    entry.part = TensorShard{dims_of_json(parsed.at("shape")), dims_of_json(parsed.at("begin")),
                             dims_of_json(parsed.at("extent")), integer_of(parsed.at("first")),
                             integer_of(parsed.at("count"))};
    entry.part->check(entry.name);
  } catch (const json::exception& error) {
    fail(error.what());
  } catch (const UsageError& error) {
    fail(error.what());
  }
  if (entry.part->held_shape() != entry.shape) fail("one of shape " + entry.part->held_shape().to_string());
}

SafetensorsHeader parse_safetensors_header(std::string_view head, std::uint64_t data_bytes,
                                           const std::filesystem::path& path, Verify verify) {
  return HeaderParser(head, data_bytes, path).parse(verify);
}

}  // namespace dtrain
