// Sums, means and extremes over dimensions.
#include <string>
#include <utility>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/promotion.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

/// A reduction's result shape, with reduced dimensions as 1 and without them.
struct ReducedShape {
  Dims kept, dropped;
};

Dims all_dims(const Tensor& x) {
  Dims dims;
  for (int i = 0; i < x.rank(); ++i) dims.push_back(i);
  return dims;
}

/// No dimensions are all of them, as in PyTorch.
ReducedShape reduced_shape(std::string_view name, const Tensor& x, const Dims& given) {
  const Dims dims = given.rank() == 0 ? all_dims(x) : given;
  ReducedShape result{x.shape(), {}};
  std::uint32_t reduced = 0;
  for (const std::int64_t dim : dims) {
    const int index = normalize_dim(dim, x.rank(), name);
    if ((reduced >> index & 1U) != 0) {
      throw UsageError(std::string(name) + ": dimension " + std::to_string(dim) + " appears twice in " +
                       dims.to_string());
    }
    reduced |= 1U << index;
    result.kept[index] = 1;
  }
  for (int i = 0; i < x.rank(); ++i) {
    if ((reduced >> i & 1U) == 0) result.dropped.push_back(x.shape()[i]);
  }
  return result;
}

Tensor reduce(Reduction op, const Tensor& x, const Dims& kept) {
  Tensor result = Tensor::empty(kept, x.shared_device(), x.dtype());
  x.device().kernels().reduce(op, x.view(), result.view());
  return result;
}

/// amax and amin: the elements equal to the result share its gradient.
Tensor extreme(std::string_view name, Reduction op, const Tensor& x, const Dims& dims, bool keep) {
  const ReducedShape shape = reduced_shape(name, x, dims);
  Tensor result = reduce(op, x, shape.kept);
  if (recording(x)) {
    Saved output = Saved::output(result), input = Saved::input(x);
    result =
        record(name, std::move(result), {x},
               [input = std::move(input), output = std::move(output)](const Tensor& grad, GradSink& sink) {
                 const Tensor ties = equal(input.get(sink), output.get(sink));
                 sink.deliver(0, mul(div(grad, ties.sum_to(grad.shape())), ties));
               });
  }
  return keep ? result : result.reshape(shape.dropped);
}

/// What is added up in place of `x`: counts of truth values and sums of small integers need more digits.
Tensor summable(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(DType::i64); }

/// Whether sums of x are made of another floating dtype's, and rounded then.
bool is_widened(const Tensor& x) {
  return is_floating(x.dtype()) && computed_in(x.dtype(), x.device()) != x.dtype();
}

}  // namespace

Tensor sum(const Tensor& x) {
  if (is_widened(x)) return sum(as_computed(x)).to(x.dtype());
  return summable(x).sum_to({});
}

Tensor sum(const Tensor& given, const Dims& dims, bool keep) {
  if (is_widened(given)) return sum(as_computed(given), dims, keep).to(given.dtype());
  const Tensor x = summable(given);
  const ReducedShape shape = reduced_shape("sum", x, dims);
  const Tensor result = x.sum_to(shape.kept);
  return keep ? result : result.reshape(shape.dropped);
}

Tensor mean(const Tensor& x) { return mean(x, Dims{}); }

Tensor mean(const Tensor& x, const Dims& dims, bool keep) {
  check_floating("mean", x);
  if (is_widened(x)) return mean(as_computed(x), dims, keep).to(x.dtype());
  const ReducedShape shape = reduced_shape("mean", x, dims);
  Tensor result = reduce(Reduction::mean, x, shape.kept);
  if (recording(x)) {
    const double share = static_cast<double>(shape.kept.product()) / static_cast<double>(x.numel());
    result = record("mean", std::move(result), {x}, [share](const Tensor& grad, GradSink& sink) {
      sink.deliver(0, mul(grad, share).expand(sink.shape(0)));
    });
  }
  return keep ? result : result.reshape(shape.dropped);
}

Tensor amax(const Tensor& x, const Dims& dims, bool keep) {
  return extreme("amax", Reduction::max, as_computed(x), dims, keep).to(x.dtype());
}

Tensor amin(const Tensor& x, const Dims& dims, bool keep) {
  return extreme("amin", Reduction::min, as_computed(x), dims, keep).to(x.dtype());
}

Tensor argmax(const Tensor& x, int dim, bool keep) {
  const int along = normalize_dim(dim, x.rank(), "argmax");
  const Tensor rows = as_computed(x.detach()).transpose(along, -1);
  Dims shape = rows.shape();
  shape[x.rank() - 1] = 1;
  const Tensor result = Tensor::empty(shape, x.shared_device(), DType::i64);
  x.device().kernels().argmax(rows.view(), result.view());
  const Tensor places = result.transpose(along, -1);
  return keep ? places.contiguous() : places.squeeze(along).contiguous();
}

Tensor reshape(const Tensor& x, const Dims& shape) { return x.reshape(shape); }

Tensor flatten(const Tensor& x, int first, int last) { return x.flatten(first, last); }

}  // namespace dtrain
