#include "emulation/cudnn/support.h"

#include <cstdlib>
#include <string>
#include <string_view>

#ifndef EMULATION_PREFIX
#define EMULATION_PREFIX "EMULATED_CUDA_"
#endif

namespace emulation {
namespace {

std::string_view name_of(Pass pass) {
  return pass == Pass::forward ? "forward" : pass == Pass::to_input ? "input" : "filter";
}

/// …CUDNN_REFUSES=forward:bf16,filter makes a library that lacks them.
bool is_taken_away(std::string_view name, Element type) {
  const char* const text = std::getenv(EMULATION_PREFIX "CUDNN_REFUSES");
  if (text == nullptr) return false;
  const char* const of_type = type == Element::bf16 ? ":bf16" : type == Element::f16 ? ":f16" : ":f32";
  const std::string typed = std::string(name) + of_type;
  std::string_view rest(text);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    if (item == typed || item == name) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

bool fits(const Convolution& c) {
  for (int i = 0; i < 2; ++i) {
    if (c.stride[i] < 1 || c.dilation[i] < 1 || c.pad[i] < 0) return false;
  }
  if (c.input.extent[1] != c.filter.extent[1] * c.groups || c.filter.extent[0] % c.groups != 0) return false;
  if (c.output.extent[1] != c.filter.extent[0] || c.output.extent[0] != c.input.extent[0]) return false;
  return c.input.type == c.filter.type && c.input.type == c.output.type &&
         (c.input.type == Element::f32 || c.input.type == Element::bf16 || c.input.type == Element::f16);
}

}  // namespace

std::vector<Algorithm> algorithms(Pass pass, const Convolution& c) {
  if (!fits(c) || is_taken_away(name_of(pass), c.input.type)) return {};
  const int best = pass == Pass::forward ? static_cast<int>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
                   : pass == Pass::to_input ? static_cast<int>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)
                                            : static_cast<int>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
  const int loose = pass == Pass::to_input ? static_cast<int>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0)
                                           : static_cast<int>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0);
  std::vector<Algorithm> found;
  // The fastest is often one that adds atomically.
  if (pass != Pass::forward) found.push_back({loose, CUDNN_NON_DETERMINISTIC, CUDNN_DEFAULT_MATH, 0});
  if (c.input.type == Element::f32) {
    found.push_back({best, CUDNN_DETERMINISTIC, CUDNN_DEFAULT_MATH, 4096});  // TF32
    found.push_back({best, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH, 65536});
  } else {
    found.push_back({best, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH, 4096});
    found.push_back({best, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH, 65536});
  }
  return found;
}

}  // namespace emulation
