// Picking, adding up and ordering elements along one dimension, as torch has them. `dim` may be given from
// the end. All are deterministic on every device.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// out[…, i, …] = x[…, index[…, i, …], …], the index standing in dimension `dim`. index: int64 of x's rank,
/// not larger than x but in `dim`; out has its shape. Throws UsageError for an index outside x.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// A copy of x with out[…, index[…, i, …], …] += source[…, i, …], in the order of i. index: as for gather,
/// and not larger than source.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
/// Running sums along `dim`, accumulated in double.
Tensor cumsum(const Tensor& x, int dim);

/// Sorted along `dim`. Equal elements keep their order (as torch's with stable=True); NaN counts as the
/// largest. Gradients go back to where the values were.
Sorted sort(const Tensor& x, int dim = -1, bool descending = false);
/// The k largest (or smallest) along `dim`, sorted; of equal ones the first.
Sorted topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true);

/// The elements in opposite order along each of `dims`. A copy.
Tensor flip(const Tensor& x, const Dims& dims);
/// The elements moved by shifts[i] places along dims[i], those that leave at the end coming back at the
/// beginning; without dims, moved in row-major order. A copy.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});
/// int64: index.shape + [classes], 1 where the last place is the index, else 0; as many classes as the
/// largest index needs unless given. Throws UsageError for an index outside, on devices that do not run
/// ahead; on others its row is 0.
Tensor one_hot(const Tensor& index, std::optional<std::int64_t> classes = std::nullopt);

/// Fills up: amounts are before and after the last dimension, then the one before it, … (torch's order);
/// negative ones cut off.
Tensor pad(const Tensor& x, const Dims& amounts, double value = 0);

enum class PadMode {
  constant,
  reflect,    ///< mirrored at the first and the last element, which are not repeated
  replicate,  ///< the first and the last element again
  circular,   ///< what the other end has
};
/// The same with elements of x. Throws UsageError for amounts that x has not enough elements for.
Tensor pad(const Tensor& x, const Dims& amounts, PadMode mode);

}  // namespace dtrain
