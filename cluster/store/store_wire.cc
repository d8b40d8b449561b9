// Requests and responses as bytes. Lengths are checked before anything is kept.
#include "cluster/store/store_wire.h"

#include "cluster/net/bytes.h"

namespace dtrain::wire {

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
