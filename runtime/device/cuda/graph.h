// Recording the compute stream, and the graph that comes of it.
#pragma once

#include <functional>
#include <memory>

#include "runtime/device/cuda/context.h"

namespace dtrain::cuda {

/// Device::record() on the context's stream; `memory` outlives the graph.
std::unique_ptr<Graph> record_graph(cudaStream_t stream, Memory& memory, const std::function<void()>& work);

}  // namespace dtrain::cuda
