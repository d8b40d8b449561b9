#include "cluster/net/bytes.h"

namespace dtrain::wire {

void ByteWriter::put(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

void ByteWriter::text(std::string_view bytes) {
  u32(static_cast<std::uint32_t>(bytes.size()));
  raw(bytes);
}

std::string_view ByteReader::raw(std::size_t bytes) {
  if (!good_ || bytes > in_.size()) {
    good_ = false;
    return {};
  }
  const std::string_view taken = in_.substr(0, bytes);
  in_.remove_prefix(bytes);
  return taken;
}

std::string_view ByteReader::text(std::size_t max_bytes) {
  const std::uint32_t bytes = u32();
  if (bytes > max_bytes) good_ = false;
  return raw(bytes);
}

std::uint64_t ByteReader::take(std::size_t bytes) {
  const std::string_view taken = raw(bytes);
  std::uint64_t value = 0;
  for (std::size_t i = taken.size(); i > 0; --i) value = value << 8 | static_cast<std::uint8_t>(taken[i - 1]);
  return value;
}

}  // namespace dtrain::wire
