// Memory for time: what a function computes on its way is not kept for backward but computed once more there
// (torch.utils.checkpoint; Chen et al., "Training deep nets with sublinear memory cost", 2016).
#pragma once

#include <functional>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain {

using TensorFunction = std::function<Tensor(const Tensor&)>;
using TensorsFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// function(input), of which only `input` and the result are kept. Backward calls `function` once more, in
/// the precision of the first call, and differentiates that: the same gradients, bit for bit, for the time of
/// one more forward. So also where several recomputed parts share parameters or inputs, but for inputs that
/// are leaves: of one that a part uses more than once, the part's gradients are added up first.
///
/// `function` must compute the same again: it owns or outlives what it refers to, draws no random numbers but
/// those of Dropout and Noise (a Generator throws UsageError here), and leaves alone, while recomputing(),
/// whatever counts its calls (running statistics). `parameters` are the tensors besides `input` that
/// gradients are to reach; others that it uses count as constants. Calls may nest, and what `function` throws
/// comes out of here, or of backward. While nothing is recorded this is just function(input).
///
/// Backward throws UsageError when the input or a parameter was modified since, or when the second result
/// does not have the shape and dtype of the first. Gradients of its gradients are not available (UsageError).
Tensor recomputed(TensorFunction function, const Tensor& input, const std::vector<Tensor>& parameters);

/// The same for several inputs (some may be undefined) and several results, at least one.
std::vector<Tensor> recomputed(TensorsFunction function, const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& parameters);

/// True while this thread runs a function for the second time.
bool recomputing() noexcept;

}  // namespace dtrain
