// A network as ONNX has it, before it is a file: nodes in the order they run, and what they are fed.
// https://github.com/onnx/onnx/blob/main/docs/IR.md
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/device/dims.h"
#include "runtime/tensor/tensor.h"

namespace dtrain::onnx {

using Extents = std::vector<std::int64_t>;

/// The operators a graph may use, and since when ONNX has them as they are used here (IR version 8).
inline constexpr std::int64_t kOpset = 17, kIrVersion = 8;

/// Element types by the numbers of onnx.proto.
enum class ElementType : int {
  f32 = 1,
  u8 = 2,
  i8 = 3,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  bf16 = 16
};

ElementType element_type(DType dtype);

using AttributeValue = std::variant<std::int64_t, float, Extents>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

struct Node {
  std::string type;  ///< "Conv"
  std::vector<std::string> inputs, outputs;
  Attributes attributes = {};

  bool operator==(const Node&) const = default;
};

/// A small tensor that the network made up: a number, a mask, the places of a window.
struct Constant {
  std::string name;
  ElementType type = ElementType::f32;
  Extents extents;
  std::string bytes;  ///< little-endian, row-major

  bool operator==(const Constant&) const = default;
};

/// Extents or places, int64 [n], that may follow the batch's size: each is `fixed` + `per_sample` · samples.
struct Sizes {
  std::string name;
  Extents fixed, per_sample;  ///< of a graph traced once the latter is empty
  bool reshapes = false;      ///< the extents of a Reshape, which may leave one open
};

/// What a graph is fed or gives; the first extent is the batch's.
struct Port {
  std::string name;
  ElementType type = ElementType::f32;
  Extents extents;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Constant> constants;
  std::vector<Sizes> sizes;
  std::vector<std::pair<std::string, Tensor>> weights;  ///< those that are used
  std::vector<Port> inputs, outputs;                    ///< inputs: those that are used
};

/// The graph for any number of samples, from the traces of it with `samples_a` and with `samples_b`: what
/// differs between them follows the batch. Throws UsageError where they are not the same operations.
Graph for_any_batch(Graph a, std::int64_t samples_a, const Graph& b, std::int64_t samples_b);

/// A ModelProto. `description`: name → value, among them "producer_version".
std::string serialize(const Graph& graph, const std::string& name,
                      const std::map<std::string, std::string>& description);

}  // namespace dtrain::onnx
