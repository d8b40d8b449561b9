#include "runtime/autograd/ops/embedding.h"

#include <string>

#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// 1 for each index but `padding`, as a column of `dtype`.
Tensor not_padding(const Tensor& index, std::int64_t padding, DType dtype) {
  const NoGrad no_grad;
  // In float64 every index is exact.
  const Tensor rows = index.to(DType::f64);
  const Tensor same =
      equal(rows, Tensor::full({}, static_cast<double>(padding), rows.shared_device(), DType::f64));
  return add(neg(same), 1.0).to(dtype).unsqueeze(1);
}

/// `padding`, counted from the end where it is negative, as a row of `weight`.
std::int64_t padding_row(std::int64_t padding, const Tensor& weight) {
  const std::int64_t rows = weight.size(0);
  if (padding >= -rows && padding < rows) return padding < 0 ? padding + rows : padding;
  throw UsageError("embedding: expected a padding index from " + std::to_string(-rows) + " to " +
                   std::to_string(rows - 1) + " for a weight " + weight.describe() + ", got " +
                   std::to_string(padding));
}

}  // namespace

Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<std::int64_t> padding_index) {
  if (weight.rank() != 2 || (index.dtype() != DType::i64 && index.dtype() != DType::i32)) {
    throw UsageError("embedding: expected an index of int64 or int32 and a weight [count, width], got " +
                     index.describe() + " and " + weight.describe());
  }
  if (padding_index) padding_index = padding_row(*padding_index, weight);
  const Tensor flat = index.to(DType::i64).reshape({index.numel()});
  Dims shape = index.shape();
  shape.push_back(weight.size(1));
  Tensor rows = weight.index_select(0, flat);
  if (padding_index && recording(rows)) {
    const Tensor kept = not_padding(flat, *padding_index, weight.dtype());
    rows = record("embedding", rows.detach(), {rows},
                  [kept](const Tensor& grad, GradSink& sink) { sink.deliver(0, mul(grad, kept)); });
  }
  return rows.reshape(shape);
}

}  // namespace dtrain
