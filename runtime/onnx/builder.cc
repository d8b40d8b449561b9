#include "runtime/onnx/builder.h"

#include <fmt/format.h>

namespace dtrain::onnx {
namespace {

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string bytes_of(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return bytes_of(static_cast<float>(value));
    case DType::f64:
      return bytes_of(value);
    case DType::bf16:
      return bytes_of(BFloat16(static_cast<float>(value)));
    case DType::i64:
      return bytes_of(static_cast<std::int64_t>(value));
    case DType::i32:
      return bytes_of(static_cast<std::int32_t>(value));
    default:
      return bytes_of(static_cast<std::uint8_t>(value));
  }
}

/// The elements of `view` in row-major order, from dimension `dim` on, behind `bytes`.
void append_elements(const View& view, int dim, const char* at, std::string& bytes) {
  const std::size_t size = size_of(view.dtype);
  if (dim == view.rank()) {
    bytes.append(at, size);
    return;
  }
  for (std::int64_t i = 0; i < view.shape[dim]; ++i)
    append_elements(view, dim + 1, at + i * view.strides[dim] * static_cast<std::int64_t>(size), bytes);
}

}  // namespace

std::string Builder::fresh(const std::string& kind) { return fmt::format("/{}/{}", kind, names_++); }

std::string Builder::node(std::string type, std::vector<std::string> inputs, Attributes attributes) {
  std::string output = fresh("t");
  graph_.nodes.push_back({std::move(type), std::move(inputs), {output}, std::move(attributes)});
  return output;
}

std::string Builder::sizes(Extents values, bool reshapes) {
  std::string name = fresh("sizes");
  graph_.sizes.push_back({name, std::move(values), {}, reshapes});
  return name;
}

std::string Builder::number(DType dtype, double value) {
  std::string name = fresh("number");
  graph_.constants.push_back({name, element_type(dtype), {}, bytes_of(dtype, value)});
  return name;
}

std::string Builder::numbers(DType dtype, double value, std::int64_t count) {
  std::string name = fresh("numbers"), bytes;
  for (std::int64_t i = 0; i < count; ++i) bytes += bytes_of(dtype, value);
  graph_.constants.push_back({name, element_type(dtype), {count}, std::move(bytes)});
  return name;
}

std::string Builder::constant(const View& view) {
  std::string name = fresh("constant"), bytes;
  bytes.reserve(static_cast<std::size_t>(view.numel()) * size_of(view.dtype));
  append_elements(view, 0, view.as<const char>(), bytes);
  const Extents extents(view.shape.begin(), view.shape.end());
  graph_.constants.push_back({name, element_type(view.dtype), extents, std::move(bytes)});
  return name;
}

Value Builder::reshape(const Value& value, const Dims& shape) {
  if (value.shape == shape) return value;
  return {node("Reshape", {value.name, sizes({shape.begin(), shape.end()}, true)}), shape};
}

Value Builder::transpose(const Value& value, const std::vector<int>& order) {
  Dims shape;
  Extents permutation;
  bool moved = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    shape.push_back(value.shape[order[i]]);
    permutation.push_back(order[i]);
    moved = moved || order[i] != static_cast<int>(i);
  }
  if (!moved) return value;
  return {node("Transpose", {value.name}, {{"perm", std::move(permutation)}}), shape};
}

Value Builder::expand(const Value& value, const Dims& shape) {
  if (value.shape == shape) return value;
  return {node("Expand", {value.name, sizes({shape.begin(), shape.end()})}), shape};
}

std::string Builder::cast(const std::string& name, DType from, DType to) {
  return from == to ? name : cast(name, element_type(to));
}

}  // namespace dtrain::onnx
