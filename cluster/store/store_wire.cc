// Frames and messages of the store. Lengths are checked before anything is kept.
#include "cluster/store/store_wire.h"

#include <limits>

namespace dtrain::wire {
namespace {

// Buffers that once held a large frame are given back.
constexpr std::size_t kKeepCapacity = 64 * 1024;

}  // namespace

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

void FrameWriter::append(std::string& out, std::string_view payload) {
  const std::size_t start = out.size();
  ByteWriter writer(out);
  writer.u32(static_cast<std::uint32_t>(payload.size()));
  writer.u64(sequence_++);
  writer.raw(payload);
  writer.raw(key_.sign({std::string_view(out).substr(start)}).view());
}

void FrameReader::feed(std::string_view bytes) {
  if (!reason_.empty()) return;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    if (buffer_.capacity() > kKeepCapacity) buffer_.shrink_to_fit();
  } else {
    buffer_.erase(0, start_);
  }
  start_ = 0;
  buffer_.append(bytes);
}

FrameReader::Result FrameReader::fail(std::string_view reason) noexcept {
  reason_ = reason;
  return Result::bad;
}

FrameReader::Result FrameReader::next(std::string_view& payload) {
  if (!reason_.empty()) return Result::bad;
  const std::string_view rest = std::string_view(buffer_).substr(start_);
  if (rest.size() < kFrameHeaderBytes) return Result::need_more;
  ByteReader header(rest);
  const std::size_t payload_bytes = header.u32();
  if (payload_bytes > kMaxPayloadBytes) return fail("a frame longer than any the store sends");
  if (header.u64() != sequence_) return fail("a frame out of sequence");
  const std::size_t signed_bytes = kFrameHeaderBytes + payload_bytes;
  if (rest.size() < signed_bytes + Digest::kBytes) return Result::need_more;
  if (!key_.verify({rest.substr(0, signed_bytes)}, rest.substr(signed_bytes, Digest::kBytes)))
    return fail("a frame whose authentication code is wrong");
  payload = rest.substr(kFrameHeaderBytes, payload_bytes);
  start_ += signed_bytes + Digest::kBytes;
  ++sequence_;
  return Result::frame;
}

std::string encode(const Request& request) {
  std::string out;
  ByteWriter writer(out);
  writer.u8(static_cast<std::uint8_t>(request.op));
  writer.u64(request.id);
  writer.u32(static_cast<std::uint32_t>(request.keys.size()));
  for (const std::string& key : request.keys) writer.text(key);
  writer.text(request.value);
  writer.u8(request.expected ? 1 : 0);
  if (request.expected) writer.text(*request.expected);
  writer.u64(static_cast<std::uint64_t>(request.delta));
  return out;
}

std::optional<Request> decode_request(std::string_view payload) {
  ByteReader reader(payload);
  Request request;
  const std::uint8_t op = reader.u8();
  if (op < static_cast<std::uint8_t>(Op::set) || op > static_cast<std::uint8_t>(kLastOp)) return std::nullopt;
  request.op = static_cast<Op>(op);
  request.id = reader.u64();
  const std::uint32_t keys = reader.u32();
  const std::size_t expected_keys = request.op == Op::cancel ? 0 : 1;
  if (request.op == Op::wait ? keys > kMaxWaitKeys : keys != expected_keys) return std::nullopt;
  for (std::uint32_t i = 0; i < keys && reader.good(); ++i)
    request.keys.emplace_back(reader.text(kMaxKeyBytes));
  request.value = reader.text(kMaxValueBytes);
  const std::uint8_t has_expected = reader.u8();
  if (has_expected > 1) return std::nullopt;
  if (has_expected == 1) request.expected.emplace(reader.text(kMaxValueBytes));
  request.delta = static_cast<std::int64_t>(reader.u64());
  if (!reader.finished()) return std::nullopt;
  return request;
}

std::string encode(const Response& response) {
  std::string out;
  ByteWriter writer(out);
  writer.u64(response.id);
  writer.u8(static_cast<std::uint8_t>(response.status));
  writer.text(response.value);
  return out;
}

std::optional<Response> decode_response(std::string_view payload) {
  ByteReader reader(payload);
  Response response;
  response.id = reader.u64();
  const std::uint8_t status = reader.u8();
  if (status > static_cast<std::uint8_t>(kLastStatus)) return std::nullopt;
  response.status = static_cast<Status>(status);
  response.value = reader.text(kMaxValueBytes);
  if (!reader.finished()) return std::nullopt;
  return response;
}

}  // namespace dtrain::wire
