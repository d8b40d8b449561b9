// Adds nodes to a graph, with names of their own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/device/view.h"
#include "runtime/onnx/graph.h"

namespace dtrain::onnx {

/// A tensor of the graph: its name and the extents it has there.
struct Value {
  std::string name;
  Dims shape;
};

/// `graph` is borrowed.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() noexcept { return graph_; }

  /// Adds a node with one output; returns that one's name.
  std::string node(std::string type, std::vector<std::string> inputs, Attributes attributes = {});
  /// int64 [n], of which some may turn out to follow the batch's size.
  std::string sizes(Extents values, bool reshapes = false);
  /// One number, [].
  std::string number(DType dtype, double value);
  /// `count` times the same number, [count].
  std::string numbers(DType dtype, double value, std::int64_t count);
  /// What `view`, of host memory and any strides, holds now.
  std::string constant(const View& view);

  /// `value` with another shape of as many elements; the same where it has that shape.
  Value reshape(const Value& value, const Dims& shape);
  /// Dimension i of the result is dimension order[i]; the same where nothing moves.
  Value transpose(const Value& value, const std::vector<int>& order);
  /// Broadcast to `shape`; the same where it has that shape.
  Value expand(const Value& value, const Dims& shape);
  std::string cast(const std::string& name, DType from, DType to);
  std::string cast(const std::string& name, ElementType to) {
    return node("Cast", {name}, {{"to", static_cast<std::int64_t>(to)}});
  }

 private:
  std::string fresh(const std::string& kind);

  Graph& graph_;
  std::size_t names_ = 0;
};

}  // namespace dtrain::onnx
