// The one graph of operations that the emulated cuDNN does in one kernel: a convolution forward, a bias added
// to it, and each channel's sum and sum of squares.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "emulation/math/convolution.h"

namespace emulation {

struct Descriptor;

/// How a plan does a fusion.
struct FusionEngine {
  std::int64_t index = 0;
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::int64_t workspace_bytes = 0;
  bool in_any_order = false;      ///< adds up as threads come, each time in another order
  bool is_only_proposed = false;  ///< a heuristic names it, and no plan comes of it
};

struct Fusion {
  Convolution convolution;  ///< its output is what is stored
  Element bias_type = Element::f32;
  bool has_bias = false;
  bool sums_stored = false;  ///< the statistics are those of the rounded output, not of what is rounded
  std::int64_t input = 0, filter = 0, bias = 0, output = 0, sum = 0, squares = 0;  ///< the tensors' ids
  std::int64_t alignment = 1;  ///< bytes that all tensors promise
  std::vector<std::int64_t> ids() const;
};

/// The fusion that the operations of a graph are; null for any other graph.
std::shared_ptr<const Fusion> recognize(const std::vector<const Descriptor*>& operations);

/// Where the arrays of a run are.
struct FusionArrays {
  const void *input, *filter, *bias;
  void* output;
  float *sum, *squares;
};

void run(const Fusion& fusion, const FusionEngine& engine, const FusionArrays& arrays);

}  // namespace emulation
