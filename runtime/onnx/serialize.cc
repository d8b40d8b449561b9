// A graph as a ModelProto: field numbers are those of onnx.proto.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/onnx/graph.h"
#include "runtime/onnx/wire.h"

namespace dtrain::onnx {
namespace {

constexpr const char* kBatch = "batch";
constexpr std::uint64_t kMostBytes = (2ULL << 30) - (1 << 20);  // a message of Protocol Buffers is smaller

std::string_view bytes_of(const View& view) {
  return {view.as<const char>(), static_cast<std::size_t>(view.numel()) * size_of(view.dtype)};
}

std::string_view bytes_of(const Extents& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

Message tensor(const std::string& name, ElementType type, const Extents& extents, std::string_view values) {
  Message message;
  for (const std::int64_t extent : extents) message.number(1, extent);
  message.number(2, static_cast<int>(type));
  message.text(8, name);
  message.text(9, values);
  return message;
}

Message attribute(const std::string& name, const AttributeValue& value) {
  enum Kind { kFloat = 1, kInt = 2, kInts = 7 };
  Message message;
  message.text(1, name);
  if (const auto* real = std::get_if<float>(&value)) {
    message.real(2, *real);
    message.number(20, kFloat);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    message.number(3, *integer);
    message.number(20, kInt);
  } else {
    for (const std::int64_t each : std::get<Extents>(value)) message.number(8, each);
    message.number(20, kInts);
  }
  return message;
}

Message node(const Node& node, std::size_t number) {
  Message message;
  for (const std::string& input : node.inputs) message.text(1, input);
  for (const std::string& output : node.outputs) message.text(2, output);
  message.text(3, fmt::format("{}_{}", node.type, number));
  message.text(4, node.type);
  for (const auto& [name, value] : node.attributes) message.message(5, attribute(name, value));
  return message;
}

Message port(const Port& port) {
  Message shape;
  for (std::size_t i = 0; i < port.extents.size(); ++i) {
    Message extent;
    i == 0 ? extent.text(2, kBatch) : extent.number(1, port.extents[i]);
    shape.message(1, extent);
  }
  Message tensor_type, type, message;
  tensor_type.number(1, static_cast<int>(port.type));
  tensor_type.message(2, shape);
  type.message(1, tensor_type);
  message.text(1, port.name);
  message.message(2, type);
  return message;
}

Message pair(const std::string& key, const std::string& value) {
  Message message;
  message.text(1, key);
  message.text(2, value);
  return message;
}

void add_weights(const Graph& graph, Message& message) {
  for (const auto& [name, weight] : graph.weights) {
    const Tensor dense = weight.detach().contiguous();
    const Extents extents(dense.shape().begin(), dense.shape().end());
    message.message(5, tensor(name, element_type(dense.dtype()), extents, bytes_of(dense.view())));
  }
}

Message graph_of(const Graph& graph, const std::string& name) {
  Message message;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) message.message(1, node(graph.nodes[i], i));
  message.text(2, name);
  add_weights(graph, message);
  for (const Constant& constant : graph.constants)
    message.message(5, tensor(constant.name, constant.type, constant.extents, constant.bytes));
  for (const Sizes& sizes : graph.sizes) {
    const Extents extents = {static_cast<std::int64_t>(sizes.fixed.size())};
    message.message(5, tensor(sizes.name, ElementType::i64, extents, bytes_of(sizes.fixed)));
  }
  for (const Port& input : graph.inputs) message.message(11, port(input));
  for (const Port& output : graph.outputs) message.message(12, port(output));
  return message;
}

}  // namespace

ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ElementType::f32;
    case DType::f64:
      return ElementType::f64;
    case DType::bf16:
      return ElementType::bf16;
    case DType::i64:
      return ElementType::i64;
    case DType::i32:
      return ElementType::i32;
    case DType::u8:
      return ElementType::u8;
    case DType::f16:
      return ElementType::f16;
    case DType::i16:
      return ElementType::i16;
    case DType::i8:
      return ElementType::i8;
    case DType::boolean:
      return ElementType::boolean;
  }
  return ElementType::f32;
}

std::string serialize(const Graph& graph, const std::string& name,
                      const std::map<std::string, std::string>& description) {
  std::uint64_t bytes = 0;
  for (const auto& [weight, tensor] : graph.weights)
    bytes += static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
  if (bytes > kMostBytes)
    throw UsageError(
        fmt::format("export: expected weights of less than 2 GiB, the most a .onnx file holds, "
                    "got {} bytes",
                    bytes));
  Message model, opset;
  model.number(1, kIrVersion);
  model.text(2, "dtrain");
  const auto version = description.find("producer_version");
  if (version != description.end()) model.text(3, version->second);
  model.message(7, graph_of(graph, name));
  opset.text(1, "");
  opset.number(2, kOpset);
  model.message(8, opset);
  for (const auto& [key, value] : description) {
    if (key != "producer_version") model.message(14, pair(key, value));
  }
  return std::move(model).bytes();
}

}  // namespace dtrain::onnx
