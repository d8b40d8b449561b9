#include "parallel/server/protocol.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/json/strict_json.h"

namespace dtrain::server {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 36;
constexpr std::size_t kMostDims = 8;

class Writer {
 public:
  explicit Writer(std::byte* out) : out_(out) {}
  void put(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) *out_++ = static_cast<std::byte>(value >> (8 * i) & 0xff);
  }

 private:
  std::byte* out_;
};

class Reader {
 public:
  explicit Reader(const std::byte* in) : in_(in) {}
  std::uint64_t take(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= std::to_integer<std::uint64_t>(*in_++) << (8 * i);
    return value;
  }

 private:
  const std::byte* in_;
};

json describe(const TensorMeta& meta) {
  return {{"name", meta.name}, {"dtype", meta.dtype}, {"shape", meta.shape}};
}

/// Throws UsageError for a number that is no integer, json's exceptions for what is no array.
std::vector<std::int64_t> integers_of(const json& list) {
  std::vector<std::int64_t> integers;
  for (const json& item : list.get_ref<const json::array_t&>()) integers.push_back(integer_of(item));
  return integers;
}

// Throws UsageError and json's exceptions for what is not there or of another type.
std::optional<TensorMeta> read_tensor(const json& item) {
  const std::int64_t dtype = integer_of(item.at("dtype"));
  if (dtype < 0 || dtype > static_cast<int>(DType::boolean)) return std::nullopt;
  TensorMeta meta{item.at("name").get<std::string>(), static_cast<int>(dtype), integers_of(item.at("shape"))};
  if (meta.shape.size() > kMostDims) return std::nullopt;
  std::int64_t count = 1;
  for (const std::int64_t extent : meta.shape) {
    if (extent < 0 || (extent > 0 && count > kMostElements / extent)) return std::nullopt;
    count *= extent;
  }
  return meta;
}

}  // namespace

std::array<std::byte, kEnvelopeBytes> encode(const Envelope& envelope) {
  std::array<std::byte, kEnvelopeBytes> bytes;
  Writer writer(bytes.data());
  writer.put(envelope.kind, 4);
  writer.put(envelope.keys, 4);
  writer.put(envelope.text_bytes, 4);
  writer.put(envelope.payload_bytes, 8);
  writer.put(envelope.id, 8);
  writer.put(static_cast<std::uint64_t>(envelope.number), 8);
  writer.put(static_cast<std::uint64_t>(envelope.ahead), 8);
  writer.put(std::bit_cast<std::uint64_t>(envelope.rate), 8);
  return bytes;
}

std::optional<Envelope> decode_envelope(std::span<const std::byte> bytes, std::uint8_t last_kind) {
  if (bytes.size() != kEnvelopeBytes) return std::nullopt;
  Reader reader(bytes.data());
  const std::uint64_t kind = reader.take(4);
  if (kind < 1 || kind > last_kind) return std::nullopt;
  Envelope envelope;
  envelope.kind = static_cast<std::uint8_t>(kind);
  envelope.keys = static_cast<std::uint32_t>(reader.take(4));
  envelope.text_bytes = static_cast<std::uint32_t>(reader.take(4));
  envelope.payload_bytes = reader.take(8);
  envelope.id = reader.take(8);
  envelope.number = static_cast<std::int64_t>(reader.take(8));
  envelope.ahead = static_cast<std::int64_t>(reader.take(8));
  envelope.rate = std::bit_cast<double>(reader.take(8));
  if (envelope.keys > kMostKeys || envelope.text_bytes > kMostTextBytes ||
      envelope.payload_bytes > kMostPayloadBytes)
    return std::nullopt;
  return envelope;
}

std::vector<std::byte> encode_preface(const Message& message) {
  std::vector<std::byte> bytes(4 * message.keys.size() + message.text.size());
  Writer writer(bytes.data());
  for (const std::uint32_t key : message.keys) writer.put(key, 4);
  if (!message.text.empty())
    std::memcpy(bytes.data() + 4 * message.keys.size(), message.text.data(), message.text.size());
  return bytes;
}

void decode_preface(std::span<const std::byte> bytes, Message& message) {
  Reader reader(bytes.data());
  message.keys.resize(message.head.keys);
  for (std::uint32_t& key : message.keys) key = static_cast<std::uint32_t>(reader.take(4));
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 4 * message.keys.size();
  message.text.assign(text, message.head.text_bytes);
}

TensorMeta meta_of(const std::string& name, const Tensor& tensor) {
  const Dims& shape = tensor.shape();
  return {name, static_cast<int>(tensor.dtype()), {shape.begin(), shape.end()}};
}

std::string to_text(const TensorMeta& meta) { return describe(meta).dump(); }

std::string to_text(const StateMeta& meta) {
  json tensors = json::array();
  for (const TensorMeta& tensor : meta.tensors) tensors.push_back(describe(tensor));
  return json{{"tensors", std::move(tensors)}, {"keys", meta.keys}, {"applied", meta.applied}}.dump();
}

std::optional<TensorMeta> tensor_meta(const std::string& text) {
  try {
    return read_tensor(json::parse(text));
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const UsageError&) {  // a number that is no integer
    return std::nullopt;
  }
}

std::optional<StateMeta> state_meta(const std::string& text) {
  try {
    const json parsed = json::parse(text);
    StateMeta meta;
    for (const json& item : parsed.at("tensors")) {
      auto tensor = read_tensor(item);
      if (!tensor) return std::nullopt;
      meta.tensors.push_back(std::move(*tensor));
    }
    meta.keys = integer_of(parsed.at("keys"));
    meta.applied = integers_of(parsed.at("applied"));
    if (meta.keys < 0 || meta.keys > static_cast<std::int64_t>(meta.tensors.size())) return std::nullopt;
    return meta;
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const UsageError&) {  // a number that is no integer
    return std::nullopt;
  }
}

std::size_t bytes_of(const TensorMeta& meta) {
  std::size_t count = 1;
  for (const std::int64_t extent : meta.shape) count *= static_cast<std::size_t>(extent);
  return count * size_of(static_cast<DType>(meta.dtype));
}

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
}

void append_values(const Tensor& tensor, std::vector<std::byte>& payload) {
  Tensor dense = tensor.detach();
  if (dense.device().type() != DeviceType::cpu) dense = dense.to(make_device("cpu"));
  dense = dense.contiguous();
  const auto* bytes = static_cast<const std::byte*>(dense.view().data);
  payload.insert(payload.end(), bytes, bytes + bytes_of(dense));
}

bool take_values(std::span<const std::byte> payload, std::size_t& offset, const Tensor& tensor) {
  const std::size_t bytes = bytes_of(tensor);
  if (payload.size() - offset < bytes) return false;
  // Neither a payload nor a tensor of no bytes need have an address.
  if (bytes > 0) std::memcpy(tensor.view().data, payload.data() + offset, bytes);
  offset += bytes;
  return true;
}

}  // namespace dtrain::server
