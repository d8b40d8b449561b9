// Makes the plans of oneDNN's operations. Each throws dnnl::error with dnnl_unimplemented where the library
// has no such primitive, and is for as many threads as the caller has now.
#pragma once

#include <memory>

#include "runtime/device/cpu/dense/onednn_plan.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu::onednn {

/// Data in the order of the arguments, `bias` only where it has data.
std::unique_ptr<Plan> forward_plan(const dnnl::engine& engine, const Conv2dGeometry& g, const View& input,
                                   const View& weight, const View& bias, const View& output);
std::unique_ptr<Plan> backward_input_plan(const dnnl::engine& engine, const Conv2dGeometry& g,
                                          const View& grad_output, const View& weight,
                                          const View& grad_input);
std::unique_ptr<Plan> backward_weight_plan(const dnnl::engine& engine, const Conv2dGeometry& g,
                                           const View& input, const View& grad_output,
                                           const View& grad_weight, const View& grad_bias);
std::unique_ptr<Plan> matmul_plan(const dnnl::engine& engine, const View& a, const View& b, const View& bias,
                                  bool accumulate, const View& out);

}  // namespace dtrain::cpu::onednn
