#include "cluster/net/frames.h"

namespace dtrain::net {
namespace {

constexpr std::size_t kLengthBytes = 4;

void put(std::byte* at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

std::uint64_t get(const std::byte* at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  return value;
}

std::optional<Cipher> cipher_for(Protection protection, Cipher::Direction direction, std::string_view key) {
  if (protection == Protection::none) return std::nullopt;
  return std::make_optional<Cipher>(protection, direction, key);
}

}  // namespace

FrameSealer::FrameSealer(Protection protection, std::string_view key)
    : cipher_(cipher_for(protection, Cipher::Direction::seal, key)),
      encrypted_(protection == Protection::encrypt ? kMostBodyBytes : 0) {}

SealedFrame FrameSealer::seal(std::uint64_t tag, std::span<const std::byte> body) {
  SealedFrame frame{{}, body, {}, 0};
  put(frame.header.data(), body.size(), kLengthBytes);
  put(frame.header.data() + kLengthBytes, tag, sizeof tag);
  if (!cipher_) return frame;
  frame.mac = cipher_->seal(frame.header, body, encrypted_.data());
  frame.mac_bytes = kMacBytes;
  if (!encrypted_.empty()) frame.body = {encrypted_.data(), body.size()};
  return frame;
}

FrameOpener::FrameOpener(Protection protection, std::string_view key)
    : cipher_(cipher_for(protection, Cipher::Direction::open, key)) {}

FrameOpener::Result FrameOpener::fail(std::string_view reason) noexcept {
  reason_ = reason;
  return Result::bad;
}

FrameOpener::Result FrameOpener::open(std::span<std::byte> stream, Frame& frame) {
  if (!reason_.empty()) return Result::bad;
  if (stream.size() < kLengthBytes) return Result::need_more;
  const auto length = static_cast<std::size_t>(get(stream.data(), kLengthBytes));
  if (length == 0 || length > kMostBodyBytes) return fail("a frame of impossible length");
  frame.bytes = kHeaderBytes + length + (cipher_ ? kMacBytes : 0);
  if (stream.size() < frame.bytes) return Result::need_more;
  const std::span<std::byte> body = stream.subspan(kHeaderBytes, length);
  if (cipher_ && !cipher_->open(stream.first(kHeaderBytes), body, body.data() + length))
    return fail("a frame that fails its authentication: changed, replayed or out of order");
  frame.tag = get(stream.data() + kLengthBytes, sizeof frame.tag);
  frame.body = body;
  return Result::frame;
}

}  // namespace dtrain::net
