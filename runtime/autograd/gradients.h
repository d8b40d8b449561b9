// Gradients as values instead of accumulated into leaves, and so the way to gradients of gradients.
#pragma once

#include <span>
#include <vector>

#include "runtime/autograd/ops.h"

namespace dtrain {

/// d(output · seed)/d(input) for each of `inputs`, which may be leaves or intermediate results; leaves'
/// grad() and hooks are not touched. `seed` has output's shape, or is undefined for a one-element output. An
/// input that output does not depend on gets an undefined tensor. With create_graph the results can be
/// differentiated again. Throws as Tensor::backward does.
std::vector<Tensor> gradients(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed = {},
                              BackwardOptions options = {});

/// The same for several outputs at once, each with its seed: the sum of what they give.
std::vector<Tensor> gradients(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                              std::span<const Tensor> seeds, BackwardOptions options = {});

}  // namespace dtrain
