// A network traced for two sizes of the batch: what is the same in both belongs to the network, what differs
// follows the batch.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/onnx/graph.h"

namespace dtrain::onnx {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw UsageError(fmt::format(
      "export: the network does different things for different batches ({}), so that no single graph is "
      "right for all; expected a forward pass whose operations depend neither on the number of samples nor "
      "on their values",
      what));
}

void check_nodes(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size())
    refuse(fmt::format("{} operations, then {}", a.nodes.size(), b.nodes.size()));
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    if (!(a.nodes[i] == b.nodes[i])) refuse(fmt::format("operation {}: {}", i, a.nodes[i].type));
  }
  for (std::size_t i = 0; i < std::min(a.constants.size(), b.constants.size()); ++i) {
    if (!(a.constants[i] == b.constants[i])) refuse("a tensor that the host made differs");
  }
  if (a.constants.size() != b.constants.size() || a.sizes.size() != b.sizes.size() ||
      a.outputs.size() != b.outputs.size())
    refuse("other constants");
}

/// The line through what a size is for either batch.
void fit(Sizes& sizes, std::int64_t samples_a, const Sizes& other, std::int64_t samples_b) {
  if (sizes.fixed.size() != other.fixed.size()) refuse("tensors of another rank");
  for (std::size_t i = 0; i < sizes.fixed.size(); ++i) {
    const std::int64_t at_a = sizes.fixed[i], at_b = other.fixed[i];
    const std::int64_t slope = (at_b - at_a) / (samples_b - samples_a);
    if (slope * (samples_b - samples_a) != at_b - at_a)
      refuse("an extent that is no multiple of the samples");
    sizes.per_sample.push_back(slope);
    sizes.fixed[i] = at_a - slope * samples_a;
  }
}

bool follows_batch(const Sizes& sizes) {
  return std::any_of(sizes.per_sample.begin(), sizes.per_sample.end(),
                     [](std::int64_t slope) { return slope != 0; });
}

/// A Reshape tells one extent from the number of elements.
bool leave_open(Sizes& sizes) {
  const auto varying = std::count_if(sizes.per_sample.begin(), sizes.per_sample.end(),
                                     [](std::int64_t slope) { return slope != 0; });
  if (!sizes.reshapes || varying != 1) return false;
  for (std::size_t i = 0; i < sizes.fixed.size(); ++i) {
    if (sizes.per_sample[i] != 0) sizes.fixed[i] = -1;
  }
  return true;
}

/// Nodes in front that compute `sizes` from the number of samples, the one element of `samples`.
void compute(Sizes& sizes, const std::string& samples, Graph& graph, std::vector<Node>& front) {
  const std::string name = sizes.name, slopes = name + "/per_sample", fixed = name + "/fixed";
  front.push_back({"Mul", {slopes, samples}, {name + "/scaled"}, {}});
  front.push_back({"Add", {name + "/scaled", fixed}, {name}, {}});
  graph.sizes.push_back({slopes, sizes.per_sample, {}, false});
  sizes.name = fixed;
}

}  // namespace

Graph for_any_batch(Graph a, std::int64_t samples_a, const Graph& b, std::int64_t samples_b) {
  check_nodes(a, b);
  std::vector<Node> front;
  const std::string samples = "/samples";
  const std::size_t count = a.sizes.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sizes sizes = a.sizes[i];
    fit(sizes, samples_a, b.sizes[i], samples_b);
    if (follows_batch(sizes) && !leave_open(sizes)) compute(sizes, samples, a, front);
    a.sizes[i] = std::move(sizes);
  }
  if (front.empty()) return a;
  if (a.inputs.empty()) refuse("nothing is read from the input");
  front.insert(
      front.begin(),
      {"Shape", {a.inputs.front().name}, {samples}, {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}}});
  a.nodes.insert(a.nodes.begin(), front.begin(), front.end());
  return a;
}

}  // namespace dtrain::onnx
