// The functions of ops/reductions.h.
#include "runtime/autograd/ops/reductions.h"

#include <cmath>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/functions/promotion.h"
#include "runtime/autograd/ops.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

Tensor number(const Tensor& like, double value) {
  return Tensor::full({}, value, like.shared_device(), like.dtype());
}

/// `function` of x, which is nowhere negative, and 0 where x is: there its slope may be infinite, and no
/// gradient passes.
template <class Function>
Tensor zero_at_zero(const Tensor& x, const Function& function) {
  const Tensor is_zero = x == 0, zero = number(x, 0);
  return where(is_zero, zero, function(where(is_zero, number(x, 1), x)));
}

Sorted picked(const Tensor& x, int dim, bool keep, const Tensor& places) {
  const Tensor values = gather(x, dim, places);
  if (keep) return {values, places};
  return {values.squeeze(dim), places.squeeze(dim)};
}

/// What is largest where x is smallest: integers are subtracted from -1, which none overflows.
Tensor reversed(const Tensor& x) {
  const Tensor plain = as_computed(x.detach());
  if (is_floating(x.dtype())) return neg(plain);
  return sub(Tensor::full({}, -1, x.shared_device(), plain.dtype()), plain);
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keep) {
  check_floating("var", x);
  const Tensor centre = mean(x, dims, true);
  const double count =
      centre.numel() == 0 ? 0 : static_cast<double>(x.numel()) / static_cast<double>(centre.numel());
  return div(sum(square(sub(x, centre)), dims, keep), std::max(count - correction, 0.0));
}

Tensor std(const Tensor& x, const Dims& dims, double correction, bool keep) {
  return zero_at_zero(var(x, dims, correction, keep), [](const Tensor& v) { return sqrt(v); });
}

Tensor norm(const Tensor& x, double order, const Dims& dims, bool keep) {
  check_floating("norm", x);
  const Tensor size = abs(x);
  if (order == INFINITY) return amax(size, dims, keep);
  if (order == -INFINITY) return amin(size, dims, keep);
  if (order == 0) return sum(not_equal(x, number(x, 0)), dims, keep);
  if (order == 1) return sum(size, dims, keep);
  if (order == 2) {
    return zero_at_zero(sum(square(x), dims, keep), [](const Tensor& total) { return sqrt(total); });
  }
  if (order < 0) return pow(sum(pow(size, order), dims, keep), 1 / order);
  const Tensor powers = zero_at_zero(size, [order](const Tensor& s) { return pow(s, order); });
  return zero_at_zero(sum(powers, dims, keep), [order](const Tensor& t) { return pow(t, 1 / order); });
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keep) {
  check_floating("logsumexp", x);
  if (x.numel() == 0) return log(sum(exp(x), dims, keep));  // of nothing: -∞
  const Tensor largest = amax(x.detach(), dims, true);
  // Of nothing but -∞, or with an ∞, the largest cannot be taken away.
  const Tensor shift = masked_fill(largest, isinf(largest), 0.0);
  const Tensor rest = log(sum(exp(sub(x, shift)), dims, keep));
  return add(rest, shift.reshape(rest.shape()));
}

Tensor prod(const Tensor& x) { return prod(x.flatten(), 0); }

Tensor prod(const Tensor& x, int dim, bool keep) {
  const int along = normalize_dim(dim, x.rank(), "prod");
  // By halves: the derivative of each product needs no quotient.
  Tensor rest = is_floating(x.dtype()) ? x : x.to(DType::i64);
  while (rest.size(along) > 1) {
    const std::int64_t count = rest.size(along), half = count / 2;
    const Tensor halves = mul(rest.slice(along, 0, half), rest.slice(along, half, 2 * half));
    rest = count % 2 == 0 ? halves : cat({halves, rest.slice(along, count - 1, count)}, along);
  }
  if (rest.size(along) == 0) rest = add(sum(rest, {along}, true), 1);  // of nothing, and still of x
  return keep ? rest : rest.squeeze(along);
}

Sorted max(const Tensor& x, int dim, bool keep) {
  const int along = normalize_dim(dim, x.rank(), "max");
  return picked(x, along, keep, argmax(x, along, true));
}

Sorted min(const Tensor& x, int dim, bool keep) {
  const int along = normalize_dim(dim, x.rank(), "min");
  return picked(x, along, keep, argmin(x, along, true));
}

Tensor argmin(const Tensor& x, int dim, bool keep) { return argmax(reversed(x), dim, keep); }

}  // namespace dtrain
