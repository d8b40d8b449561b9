// Which convolutions the emulated cuDNN takes, by which algorithm: the tables of cuDNN's documentation as far
// as they concern 2-D convolutions of float, bfloat16 and half. A GPU's own cuDNN may know better; what it
// refutes is changed here.
#pragma once

#include <cudnn.h>

#include <vector>

#include "emulation/math/convolution.h"

namespace emulation {

enum class Pass { forward, to_input, to_filter };

struct Algorithm {
  int number = 0;  ///< of the pass' enumeration
  cudnnDeterminism_t determinism = CUDNN_DETERMINISTIC;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  std::size_t workspace_bytes = 0;
};

/// Best first; empty: refused. `refused` names passes and types that a user has taken away (…CUDNN_REFUSES).
std::vector<Algorithm> algorithms(Pass pass, const Convolution& convolution);

}  // namespace emulation
