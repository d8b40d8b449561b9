// Putting tensors together and taking them apart, differentiably.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace dtrain {

using Tensors = std::vector<Tensor>;

/// The tensors one behind the other along `dim`: of one dtype, on one device, and of equal extents but for
/// `dim`. A copy. Throws UsageError naming the first that does not fit.
Tensor cat(std::span<const Tensor> tensors, int dim = 0);
inline Tensor cat(std::initializer_list<Tensor> tensors, int dim = 0) {
  return cat(std::span(tensors.begin(), tensors.size()), dim);
}

/// The tensors, all of one shape, along a new dimension `dim`. A copy.
Tensor stack(std::span<const Tensor> tensors, int dim = 0);
inline Tensor stack(std::initializer_list<Tensor> tensors, int dim = 0) {
  return stack(std::span(tensors.begin(), tensors.size()), dim);
}

// ---- views of parts. The gradients of all parts are put together once, so that taking a tensor apart into
// many costs no more than its size
/// Parts of the given extents along `dim`, which add up to its extent.
Tensors split(const Tensor& x, std::span<const std::int64_t> sizes, int dim = 0);
/// Parts of extent `size` along `dim`, the last one smaller where it does not divide.
Tensors split(const Tensor& x, std::int64_t size, int dim = 0);
/// `count` parts along `dim` as torch.chunk cuts them: of the extent divided by `count` and rounded up, so
/// that there may be fewer; of an extent of 0 there are `count`.
Tensors chunk(const Tensor& x, std::int64_t count, int dim = 0);
/// Each index along `dim`, which disappears.
Tensors unbind(const Tensor& x, int dim = 0);

}  // namespace dtrain
