// From tensors to the header of a safetensors file.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/checkpoint/json/strict_json.h"
#include "runtime/checkpoint/safetensors_header.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian; values are written as they are");

bool is_cut(const NamedView& tensor) { return tensor.part && !tensor.part->is_whole(); }

// A part has a key of its own: one file may hold several parts of a tensor.
std::string key_of(const NamedView& tensor) {
  return is_cut(tensor) ? tensor.name + "@" + tensor.part->to_string() : tensor.name;
}

void check_tensor(const NamedView& tensor, std::set<std::string>& seen) {
  const std::string where = "checkpoint tensor '" + tensor.name + "'";
  if (tensor.name.empty() || tensor.name == "__metadata__") {
    throw UsageError(where + ": expected a name other than '' and '__metadata__'");
  }
  if (!seen.insert(key_of(tensor)).second) {
    throw UsageError(where + ": expected each name once, got it twice");
  }
  if (!tensor.view.is_contiguous()) {
    throw UsageError(where + ": expected a contiguous view, got shape " + tensor.view.shape.to_string() +
                     " strides " + tensor.view.strides.to_string() + "; make it contiguous first");
  }
  if (tensor.view.data == nullptr && tensor.view.numel() != 0) {
    throw UsageError(where + ": expected data, got a null pointer");
  }
  if (!tensor.part) return;
  tensor.part->check(where);
  if (tensor.view.shape != tensor.part->held_shape()) {
    throw UsageError(where + ": expected a view of shape " + tensor.part->held_shape().to_string() +
                     " for the part " + tensor.part->to_string() + ", got " + tensor.view.shape.to_string());
  }
}

ordered_json entry_json(const SafetensorsEntry& entry) {
  return {{"dtype", safetensors_name(entry.dtype)},
          {"shape", json_of(entry.shape)},
          {"data_offsets", {entry.begin, entry.end}}};
}

ordered_json metadata_json(const std::vector<SafetensorsEntry>& entries,
                           const SafetensorsMetadata& metadata) {
  const std::string blank(kHexDigits, '0');
  ordered_json result;
  result[std::string(kHeaderChecksumKey)] = blank;
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kReservedMetadataPrefix)) {
      throw UsageError("checkpoint metadata '" + key +
                       "': keys that begin with 'dtrain.' are reserved; rename it");
    }
    result[key] = value;
  }
  for (const auto& entry : entries) {
    if (entry.part) result[std::string(kPartPrefix) + entry.name] = format_part(entry);
    result[std::string(kTensorChecksumPrefix) + entry.name] = entry.crc32.empty() ? blank : entry.crc32;
  }
  return result;
}

std::string header_text(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata) {
  ordered_json header;
  header["__metadata__"] = metadata_json(entries, metadata);
  for (const auto& entry : entries) header[entry.name] = entry_json(entry);
  try {
    return header.dump();
  } catch (const ordered_json::exception& error) {
    throw UsageError(std::string("checkpoint names and metadata: expected UTF-8, got ") + error.what());
  }
}

// A quote inside a JSON string is escaped, so this finds only the key itself, with a string behind it.
std::size_t checksum_position(std::string_view head) {
  const std::string key = "\"" + std::string(kHeaderChecksumKey) + "\":\"";
  return head.find(key) + key.size();
}

}  // namespace

std::vector<SafetensorsEntry> lay_out_tensors(std::span<const NamedView> tensors,
                                              std::vector<std::size_t>& order) {
  std::set<std::string> seen;
  for (const auto& tensor : tensors) check_tensor(tensor, seen);

  // The format allows no gaps, so descending widths are what keeps every tensor aligned.
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].view.dtype) > size_of(tensors[b].view.dtype);
  });

  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    const View& view = tensors[i].view;
    const std::uint64_t bytes = static_cast<std::uint64_t>(view.numel()) * size_of(view.dtype);
    entries.push_back({.name = key_of(tensors[i]),
                       .dtype = view.dtype,
                       .shape = view.shape,
                       .begin = at,
                       .end = at + bytes,
                       .tensor = tensors[i].name,
                       .part = is_cut(tensors[i]) ? tensors[i].part : std::nullopt});
    at += bytes;
  }
  return entries;
}

std::string format_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                      const SafetensorsMetadata& metadata) {
  std::string text = header_text(entries, metadata);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    throw UsageError(
        fmt::format("checkpoint header: expected at most {} bytes, got {}; save fewer tensors a file",
                    kMaxSafetensorsHeaderBytes, text.size()));
  }
  const std::uint64_t length = text.size();
  std::string head(kSafetensorsPrefixBytes, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  head += text;

  const std::size_t hole = checksum_position(head);
  head.replace(hole, kHexDigits, hex32(crc32_with_hole(head, hole)));
  return head;
}

std::string format_part(const SafetensorsEntry& entry) {
  const TensorShard& part = *entry.part;
  const ordered_json json = {{"tensor", entry.tensor},       {"shape", json_of(part.shape)},
                             {"begin", json_of(part.begin)}, {"extent", json_of(part.extent)},
                             {"first", part.first},          {"count", part.count}};
  try {
    return json.dump();
  } catch (const ordered_json::exception& error) {
    throw UsageError(std::string("checkpoint names and metadata: expected UTF-8, got ") + error.what());
  }
}

std::string header_checksum(std::string_view head) {
  return std::string(head.substr(checksum_position(head), kHexDigits));
}

}  // namespace dtrain
