// Graphs that are built node by node instead of recorded. A node's handle is its number in the graph, from 1,
// so that a clone's nodes have those of the original.
#include <cstring>

#include "emulation/cudart/enter.h"
#include "emulation/cudart/registry.h"

namespace emulation {
namespace {

cudaGraphNode_t handle_of(std::size_t node) { return reinterpret_cast<cudaGraphNode_t>(node + 1); }

cudaError_t add_node(cudaGraphNode_t* handle, cudaGraph_t graph, const cudaGraphNode_t* after,
                     std::size_t count, Operation operation) {
  if (handle == nullptr || graph == nullptr || (after == nullptr && count > 0)) return cudaErrorInvalidValue;
  Node node{std::move(operation), {}};
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = reinterpret_cast<std::uintptr_t>(after[i]);
    if (number == 0 || number > graph->nodes->size()) return cudaErrorInvalidValue;
    node.after.push_back(static_cast<std::uint32_t>(number - 1));
  }
  // Clones and what was instantiated keep the nodes they have.
  auto nodes = std::make_shared<std::vector<Node>>(*graph->nodes);
  nodes->push_back(std::move(node));
  *handle = handle_of(nodes->size() - 1);
  graph->nodes = std::move(nodes);
  return enter();
}

/// Row by row; the width of an extent without arrays is in bytes.
void copy_box(const cudaMemcpy3DParms& box) {
  const auto at = [](const cudaPitchedPtr& memory, const cudaPos& from, std::size_t y, std::size_t z) {
    return static_cast<std::byte*>(memory.ptr) + from.x +
           memory.pitch * (from.y + y + memory.ysize * (from.z + z));
  };
  for (std::size_t z = 0; z < box.extent.depth; ++z) {
    for (std::size_t y = 0; y < box.extent.height; ++y) {
      std::memmove(at(box.dstPtr, box.dstPos, y, z), at(box.srcPtr, box.srcPos, y, z), box.extent.width);
    }
  }
}

void fill_rows(const cudaMemsetParams& how) {
  for (std::size_t y = 0; y < how.height; ++y) {
    std::byte* const row = static_cast<std::byte*>(how.dst) + y * how.pitch;
    for (std::size_t x = 0; x < how.width; ++x)
      std::memcpy(row + x * how.elementSize, &how.value, how.elementSize);
  }
}

}  // namespace
}  // namespace emulation

using emulation::at_once;
using emulation::Kind;
using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  if (graph == nullptr || flags != 0) return note(cudaErrorInvalidValue);
  *graph = new CUgraph_st{std::make_shared<const std::vector<emulation::Node>>()};
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  if (clone == nullptr || graph == nullptr) return note(cudaErrorInvalidValue);
  *clone = new CUgraph_st{graph->nodes};
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (graph == nullptr || count == nullptr) return note(cudaErrorInvalidValue);
  const std::size_t all = graph->nodes->size();
  if (nodes != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < all ? emulation::handle_of(i) : nullptr;
  }
  if (nodes == nullptr || *count > all) *count = all;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                            const cudaGraphNode_t* after, size_t count) {
  return note(emulation::add_node(node, graph, after, count, at_once(Kind::wait, "empty", [] {})));
}

cudaError_t CUDARTAPI cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* after, size_t count,
                                             const cudaKernelNodeParams* how) {
  const emulation::RegisteredKernel* const kernel = emulation::find_kernel(how->func);
  if (kernel == nullptr) return note(cudaErrorInvalidDeviceFunction);
  emulation::GridCall call{how->gridDim, how->blockDim, how->sharedMemBytes, kernel->bind(how->kernelParams),
                           kernel->name};
  if (const cudaError_t error = emulation::check_configuration(call); error != cudaSuccess)
    return note(error);
  return note(emulation::add_node(node, graph, after, count,
                                  emulation::kernel_operation(std::move(call), emulation::current_device())));
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* after, size_t count,
                                             const cudaMemcpy3DParms* how) {
  // Arrays are a texture's; there are none.
  if (how->srcArray != nullptr || how->dstArray != nullptr) return note(cudaErrorNotSupported);
  return note(emulation::add_node(node, graph, after, count,
                                  at_once(Kind::copy, "copy", [kept = *how] { emulation::copy_box(kept); })));
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                               const cudaGraphNode_t* after, size_t count, void* to,
                                               const void* from, size_t bytes, cudaMemcpyKind) {
  return note(emulation::add_node(node, graph, after, count,
                                  at_once(Kind::copy, "copy", [=] { std::memmove(to, from, bytes); })));
}

cudaError_t CUDARTAPI cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* after, size_t count,
                                             const cudaMemsetParams* how) {
  if (how->elementSize != 1 && how->elementSize != 2 && how->elementSize != 4)
    return note(cudaErrorInvalidValue);
  return note(emulation::add_node(
      node, graph, after, count, at_once(Kind::fill, "fill", [kept = *how] { emulation::fill_rows(kept); })));
}

cudaError_t CUDARTAPI cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* after, size_t count,
                                           const cudaHostNodeParams* how) {
  return note(
      emulation::add_node(node, graph, after, count,
                          at_once(Kind::host, "host function", [kept = *how] { kept.fn(kept.userData); })));
}

}  // extern "C"
