// flip, roll and one_hot of ops/indexing.h.
#include <string>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

Tensor rolled(const Tensor& x, std::int64_t shift, int dim) {
  const std::int64_t extent = x.size(dim);
  if (extent == 0) return x;
  const std::int64_t last = ((shift % extent) + extent) % extent;  // how many come to the front
  if (last == 0) return x;
  return cat({x.slice(dim, extent - last, extent), x.slice(dim, 0, extent - last)}, dim);
}

}  // namespace

Tensor flip(const Tensor& x, const Dims& dims) {
  Tensor result = x;
  for (const std::int64_t dim : dims) {
    const int along = normalize_dim(dim, x.rank(), "flip");
    const std::int64_t last = x.size(along) - 1;
    const Tensor places = sub(last, Tensor::arange(x.size(along), x.shared_device()));
    result = result.index_select(along, places);
  }
  return result;
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  if (dims.rank() == 0 && shifts.rank() == 1) return rolled(x.flatten(), shifts[0], 0).reshape(x.shape());
  if (dims.rank() != shifts.rank()) {
    throw UsageError("roll: expected a shift for each dimension, got shifts " + shifts.to_string() +
                     " and dimensions " + dims.to_string());
  }
  Tensor result = x;
  for (int i = 0; i < dims.rank(); ++i)
    result = rolled(result, shifts[i], normalize_dim(dims[i], x.rank(), "roll"));
  return result;
}

Tensor one_hot(const Tensor& index, std::optional<std::int64_t> classes) {
  if (index.dtype() != DType::i64) {
    throw UsageError("one_hot: expected an index int64, got " + index.describe());
  }
  const bool is_checked = index.numel() > 0 && (!classes || !index.device().runs_ahead());
  const auto bound = [&](const Tensor& of) { return static_cast<std::int64_t>(of.item()); };
  const std::int64_t largest = is_checked ? bound(amax(index, {})) : -1;
  const std::int64_t count = classes.value_or(largest + 1);
  if (is_checked && (largest >= count || bound(amin(index, {})) < 0)) {
    const std::int64_t wrong = largest >= count ? largest : bound(amin(index, {}));
    throw UsageError("one_hot: expected an index from 0 to " + std::to_string(count - 1) + ", got " +
                     std::to_string(wrong));
  }
  if (count < 0) throw UsageError("one_hot: expected 0 classes or more, got " + std::to_string(count));
  return equal(index.unsqueeze(-1), Tensor::arange(count, index.shared_device()));
}

}  // namespace dtrain
