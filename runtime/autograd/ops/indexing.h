// Picking, adding up and ordering elements along one dimension, as torch has them. `dim` may be given from
// the end. What the CPU alone computes says so: elsewhere a UsageError names operation and device.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// out[…, i, …] = x[…, index[…, i, …], …], the index standing in dimension `dim`. index: int64 of x's rank,
/// not larger than x but in `dim`; out has its shape. Throws UsageError for an index outside x. CPU.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// A copy of x with out[…, index[…, i, …], …] += source[…, i, …], in the order of i. index: as for gather,
/// and not larger than source. CPU.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
/// Running sums along `dim`, accumulated in double. CPU.
Tensor cumsum(const Tensor& x, int dim);

/// Values in order, and the int64 places along the dimension where they were.
struct Sorted {
  Tensor values;
  Tensor indices;
};

/// Sorted along `dim`. Equal elements keep their order (as torch's with stable=True); NaN counts as the
/// largest. Gradients go back to where the values were. CPU.
Sorted sort(const Tensor& x, int dim = -1, bool descending = false);
/// The k largest (or smallest) along `dim`, sorted; of equal ones the first. CPU.
Sorted topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true);

/// Fills up: amounts are before and after the last dimension, then the one before it, … (torch's order);
/// negative ones cut off.
Tensor pad(const Tensor& x, const Dims& amounts, double value = 0);

}  // namespace dtrain
