#include "runtime/data/formats/tar_header.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

namespace dtrain {
namespace {

constexpr std::size_t kMostPieces = 1 << 20;  // of a sparse file

std::string_view text(TarBytes block, std::size_t at, std::size_t length) {
  const std::string_view field(reinterpret_cast<const char*>(block.data()) + at, length);
  return field.substr(0, field.find('\0'));
}

std::optional<std::int64_t> decimal(std::string_view digits) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> tar_number(TarBytes field) {
  if ((field[0] & 0x80) != 0) {
    std::uint64_t value = field[0] & 0x7f;
    for (const std::uint8_t byte : field.subspan(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | byte;
    }
    return static_cast<std::int64_t>(value);
  }
  std::string_view digits = text(field, 0, field.size());
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (digits.empty()) return 0;
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// The checksum's own field counts as blanks.
bool tar_checksum_fits(TarBytes header) {
  constexpr std::size_t kAt = 148, kLength = 8;
  std::int64_t sum = 0, signed_sum = 0;  // some old programs added signed bytes
  for (std::size_t i = 0; i < header.size(); ++i) {
    const std::uint8_t byte = i >= kAt && i < kAt + kLength ? ' ' : header[i];
    sum += byte;
    signed_sum += static_cast<std::int8_t>(byte);
  }
  const auto expected = tar_number(header.subspan(kAt, kLength));
  return expected && (*expected == sum || *expected == signed_sum);
}

std::string tar_name(TarBytes header) {
  std::string name(text(header, 0, TarReader::kHeaderName));
  const bool is_ustar = std::memcmp(header.data() + 257, "ustar\0", 6) == 0;
  const std::string_view prefix = is_ustar ? text(header, 345, 155) : std::string_view();
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

bool SparseMap::add(std::int64_t at, std::int64_t bytes) {
  if (stretches_.size() == kMostPieces) return false;
  stretches_.push_back({0, at, bytes});
  return true;
}

bool SparseMap::add_entries(TarBytes entries) {
  constexpr std::size_t kNumber = 12;
  for (; entries.size() >= 2 * kNumber; entries = entries.subspan(2 * kNumber)) {
    if (entries[kNumber] == 0) continue;  // not used
    const auto at = tar_number(entries.first(kNumber)), bytes = tar_number(entries.subspan(kNumber, kNumber));
    if (!at || !bytes || !add(*at, *bytes)) return false;
  }
  return true;
}

std::optional<std::vector<TarPiece>> SparseMap::pieces(std::int64_t offset, std::int64_t size,
                                                       std::int64_t stored) const {
  std::vector<TarPiece> result;
  std::int64_t end = 0;  // of the piece before, in the file
  for (const TarPiece& stretch : stretches_) {
    if (stretch.at < end || stretch.at > size || stretch.bytes > size - stretch.at || stretch.bytes > stored)
      return std::nullopt;
    end = stretch.at + stretch.bytes;
    if (stretch.bytes > 0) result.push_back({offset, stretch.at, stretch.bytes});
    offset += stretch.bytes;
    stored -= stretch.bytes;
  }
  if (stored != 0) return std::nullopt;
  result.push_back({offset, size, 0});
  return result;
}

bool SparseMapText::add(TarBytes block) {
  constexpr std::size_t kMostDigits = std::numeric_limits<std::int64_t>::digits10 + 1;
  for (const std::uint8_t byte : block) {
    if (complete()) return true;  // the rest of the block fills it
    if (byte == '\n') {
      if (!end_number()) return false;
    } else if (digits_.size() == kMostDigits) {
      return false;
    } else {
      digits_ += static_cast<char>(byte);
    }
  }
  return true;
}

bool SparseMapText::end_number() {
  const auto value = decimal(digits_);
  digits_.clear();
  if (!value) return false;
  if (!count_) {
    count_ = value;
    return *value <= static_cast<std::int64_t>(kMostPieces);
  }
  if (numbers_++ % 2 == 1) return map_.add(at_, *value);
  at_ = *value;
  return true;
}

std::string_view TarExtras::add(std::string_view records) {
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc() || length > records.size() || length < digits + 3 || *end != ' ' ||
        records[length - 1] != '\n')
      return records;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || !add(record.substr(0, equals), record.substr(equals + 1)))
      return records.substr(0, length);
    records.remove_prefix(length);
  }
  return {};
}

bool TarExtras::add(std::string_view key, std::string_view value) {
  constexpr std::string_view kSparse = "GNU.sparse.";
  if (key.starts_with(kSparse)) return add_sparse(key.substr(kSparse.size()), value);
  if (key == "path") name = value;
  if (key == "size") return (bytes = decimal(value)).has_value();
  return true;
}

bool TarExtras::add_sparse(std::string_view key, std::string_view value) {
  sparse = true;
  if (key == "name") sparse_name = value;
  if (key == "major") major = value;
  if (key == "minor") minor = value;
  if (key == "size" || key == "realsize") return (sparse_size = decimal(value)).has_value();
  if (key == "map") return add_map(value);
  if (key == "offset") return !pair_at_ && (pair_at_ = decimal(value)).has_value();
  if (key != "numbytes") return true;
  const auto bytes_of_it = decimal(value);
  const auto at = std::exchange(pair_at_, std::nullopt);
  return at && bytes_of_it && map.add(*at, *bytes_of_it);
}

bool TarExtras::add_map(std::string_view numbers) {
  map = {};
  while (!numbers.empty()) {
    std::optional<std::int64_t> pair[2];
    for (auto& number : pair) {
      const std::size_t comma = std::min(numbers.find(','), numbers.size());
      number = decimal(numbers.substr(0, comma));
      if (!number) return false;
      numbers.remove_prefix(std::min(comma + 1, numbers.size()));
    }
    if (!map.add(*pair[0], *pair[1])) return false;
  }
  return true;
}

std::string tar_name_before(TarBytes front) {
  const auto block_at = [&](std::size_t from_end) {
    return front.subspan(front.size() - from_end * kTarBlock, kTarBlock);
  };
  const std::size_t blocks = front.size() / kTarBlock;
  if (blocks == 0 || !tar_checksum_fits(block_at(1))) return {};
  for (std::size_t content = 1; content + 2 <= blocks; ++content) {
    const TarBytes header = block_at(content + 2);
    const auto kind = static_cast<char>(header[156]);
    if ((kind != 'x' && kind != 'X' && kind != 'L') || !tar_checksum_fits(header)) continue;
    const auto bytes = tar_number(header.subspan(124, 12));
    if (!bytes || (*bytes + kTarBlock - 1) / kTarBlock != static_cast<std::int64_t>(content)) continue;
    const std::string_view words = {reinterpret_cast<const char*>(header.data()) + kTarBlock,
                                    static_cast<std::size_t>(*bytes)};
    if (kind == 'L') return std::string(words.substr(0, words.find('\0')));
    TarExtras extras;
    extras.add(words);
    if (extras.name) return *extras.name;
  }
  return tar_name(block_at(1));
}

}  // namespace dtrain
