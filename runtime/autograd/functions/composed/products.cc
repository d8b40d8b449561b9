#include "runtime/autograd/ops/products.h"

#include <string>
#include <utility>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/operators.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

Tensor added(std::string_view name, std::pair<int, int> ranks, const Tensor& input, const Tensor& a,
             const Tensor& b, double beta, double alpha) {
  if (a.rank() != ranks.first || b.rank() != ranks.second) {
    throw UsageError(std::string(name) + ": expected factors of " + std::to_string(ranks.first) + " and " +
                     std::to_string(ranks.second) + " dimensions, got " + a.describe() + " and " +
                     b.describe());
  }
  check_same_device(name, input, a);
  Tensor product = matmul(a, b);
  if (alpha != 1) product = product * alpha;
  if (!strides_for_expand(input.view(), product.shape()))
    throw UsageError(std::string(name) + ": " + input.describe() + " does not broadcast to " +
                     product.shape().to_string());
  if (beta == 0) return product;
  const Tensor summand = input.to(product.dtype());
  return (beta == 1 ? summand : summand * beta) + product;
}

}  // namespace

Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return added("addmm", {2, 2}, input, a, b, beta, alpha);
}

Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return added("baddbmm", {3, 3}, input, a, b, beta, alpha);
}

Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& v, double beta, double alpha) {
  return added("addmv", {2, 1}, input, a, v, beta, alpha);
}

Tensor addcmul(const Tensor& input, const Tensor& a, const Tensor& b, Number value) {
  return input + a * b * value;
}

Tensor addcdiv(const Tensor& input, const Tensor& a, const Tensor& b, Number value) {
  return input + a / b * value;
}

Tensor lerp(const Tensor& start, const Tensor& end, double weight) {
  const Tensor way = end - start;
  return weight < 0.5 ? start + way * weight : end - way * (1 - weight);
}

Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight) {
  const Tensor way = end - start;
  return where(weight < 0.5, start + weight * way, end - way * (1 - weight));
}

}  // namespace dtrain
