#include "runtime/autograd/ops/products.h"

#include <string>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/operators.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

Tensor added(std::string_view name, int rank, const Tensor& input, const Tensor& a, const Tensor& b,
             double beta, double alpha) {
  if (a.rank() != rank || b.rank() != rank) {
    throw UsageError(std::string(name) + ": expected factors of " + std::to_string(rank) +
                     " dimensions, got " + a.describe() + " and " + b.describe());
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
  return added("addmm", 2, input, a, b, beta, alpha);
}

Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return added("baddbmm", 3, input, a, b, beta, alpha);
}

}  // namespace dtrain
