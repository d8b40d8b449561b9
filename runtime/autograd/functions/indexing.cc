// The functions of ops/indexing.h. gather and scatter_add are each other's adjoints, and everything else is
// sent back through them.
#include "runtime/autograd/ops/indexing.h"

#include <string>
#include <utility>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/promotion.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

/// Throws unless `index` may pick from x along `dim`.
void check_index(std::string_view name, const Tensor& x, int dim, const Tensor& index) {
  bool fits =
      index.dtype() == DType::i64 && index.rank() == x.rank() && index.shared_device() == x.shared_device();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == dim || index.size(i) <= x.size(i);
  if (fits) return;
  throw UsageError(std::string(name) + ": expected an index int64 of " + std::to_string(x.rank()) +
                   " dimensions on the same device, not larger than " + x.describe() + " but in dimension " +
                   std::to_string(dim) + ", got " + index.describe());
}

/// The first elements of `x` in every dimension, as many as `shape` has.
Tensor corner(Tensor x, const Dims& shape) {
  for (int i = 0; i < x.rank(); ++i) {
    if (x.size(i) != shape[i]) x = x.slice(i, 0, shape[i]);
  }
  return x;
}

Tensor zeros_like(const Tensor& x, const Dims& shape) {
  return Tensor::zeros(shape, x.shared_device(), x.dtype());
}

Tensor running_sum(const Tensor& x, int dim, bool reverse) {
  Tensor result = Tensor::empty(x.shape(), x.shared_device(), x.dtype());
  x.device().kernels().cumsum(x.view(), dim, reverse, result.view());
  return record_linear("cumsum", x, std::move(result),
                       [dim, reverse](const Tensor& grad) { return running_sum(grad, dim, !reverse); });
}

Sorted sorted(std::string_view name, const Tensor& x, int dim, bool descending, std::int64_t count) {
  if (const Tensor wide = as_computed(x); wide.dtype() != x.dtype()) {
    const Sorted result = sorted(name, wide, dim, descending, count);
    return {result.values.to(x.dtype()), result.indices};
  }
  Dims shape = x.shape();
  shape[dim] = count;
  Tensor values = Tensor::empty(shape, x.shared_device(), x.dtype());
  const Tensor indices = Tensor::empty(shape, x.shared_device(), DType::i64);
  x.device().kernels().sort(x.view(), dim, descending, values.view(), indices.view());
  if (!recording(x)) return {values, indices};
  return {record(name, std::move(values), {x},
                 [dim, places = Saved::input(indices)](const Tensor& grad, GradSink& sink) {
                   sink.deliver(0, scatter_add(zeros_like(grad, sink.shape(0)), dim, places.get(sink), grad));
                 }),
          indices};
}

/// How much `pad` adds before and after dimension `dim` of a tensor of `rank`.
struct Margin {
  std::int64_t before = 0, after = 0;
};

Margin margin_of(const Dims& amounts, int rank, int dim) {
  const int first = 2 * (rank - 1 - dim);
  if (first >= amounts.rank()) return {};
  return {amounts[first], amounts[first + 1]};
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  const int along = normalize_dim(dim, x.rank(), "gather");
  check_index("gather", x, along, index);
  Tensor result = Tensor::empty(index.shape(), x.shared_device(), x.dtype());
  x.device().kernels().gather(x.view(), along, index.view(), result.view());
  if (!recording(x)) return result;
  return record("gather", std::move(result), {x},
                [along, places = Saved::input(index)](const Tensor& grad, GradSink& sink) {
                  sink.deliver(0,
                               scatter_add(zeros_like(grad, sink.shape(0)), along, places.get(sink), grad));
                });
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const int along = normalize_dim(dim, x.rank(), "scatter_add");
  check_same_kind("scatter_add", x, source);
  check_index("scatter_add", x, along, index);
  bool fits = source.rank() == index.rank();
  for (int i = 0; fits && i < index.rank(); ++i) fits = index.size(i) <= source.size(i);
  if (!fits) {
    throw UsageError("scatter_add: expected a source at least as large as the index " + index.describe() +
                     ", got " + source.describe());
  }
  const Tensor part = corner(source, index.shape());
  Tensor result = x.detach().clone();
  x.device().kernels().scatter_add(part.view(), along, index.view(), result.view());
  if (!recording({x, part})) return result;
  return record("scatter_add", std::move(result), {x, part},
                [along, places = Saved::input(index)](const Tensor& grad, GradSink& sink) {
                  if (sink.wants(1)) sink.deliver(1, gather(grad, along, places.get(sink)));
                  if (sink.wants(0)) sink.deliver(0, grad);
                });
}

Tensor cumsum(const Tensor& x, int dim) {
  const Tensor sums = running_sum(as_computed(x), normalize_dim(dim, x.rank(), "cumsum"), false);
  return is_floating(x.dtype()) ? sums.to(x.dtype()) : sums;
}

Sorted sort(const Tensor& x, int dim, bool descending) {
  const int along = normalize_dim(dim, x.rank(), "sort");
  return sorted("sort", x, along, descending, x.size(along));
}

Sorted topk(const Tensor& x, std::int64_t k, int dim, bool largest) {
  const int along = normalize_dim(dim, x.rank(), "topk");
  if (k < 0 || k > x.size(along)) {
    throw UsageError("topk: expected k from 0 to " + std::to_string(x.size(along)) + " for dimension " +
                     std::to_string(dim) + " of " + x.describe() + ", got " + std::to_string(k));
  }
  return sorted("topk", x, along, largest, k);
}

Tensor pad(const Tensor& x, const Dims& amounts, double value) {
  if (amounts.rank() % 2 != 0 || amounts.rank() > 2 * x.rank()) {
    throw UsageError("pad: expected a number before and one after for at most " + std::to_string(x.rank()) +
                     " dimensions, got " + amounts.to_string() + " for " + x.describe());
  }
  Tensor inner = x;  // what stays where amounts are negative
  Dims shape = x.shape(), first = Dims::filled(x.rank(), 0), opposite = amounts;
  for (std::int64_t* amount = &opposite[0]; amount != &opposite[0] + opposite.rank(); ++amount) {
    *amount = -*amount;
  }
  for (int i = 0; i < x.rank(); ++i) {
    const Margin margin = margin_of(amounts, x.rank(), i);
    shape[i] += margin.before + margin.after;
    if (shape[i] < 0) {
      throw UsageError("pad: " + amounts.to_string() + " cuts more off dimension " + std::to_string(i) +
                       " than " + x.describe() + " has");
    }
    first[i] = std::max<std::int64_t>(margin.before, 0);
    const std::int64_t from = std::max<std::int64_t>(-margin.before, 0);
    inner = inner.detach().slice(i, from,
                                 std::max(from, inner.size(i) + std::min<std::int64_t>(margin.after, 0)));
  }
  Tensor result = Tensor::full(shape, value, x.shared_device(), x.dtype());
  Tensor hole = result;
  for (int i = 0; i < x.rank(); ++i) hole = hole.slice(i, first[i], first[i] + inner.size(i));
  x.device().kernels().copy(inner.view(), hole.view());
  return record_linear("pad", x, std::move(result),
                       [opposite](const Tensor& grad) { return pad(grad, opposite); });
}

}  // namespace dtrain
