#include "runtime/autograd/ops/rotary.h"

#include <utility>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// x [B, H, L, E] turned, or turned back; linear in x.
Tensor turned(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved, bool back) {
  const bool rows_outside =
      x.strides()[2] > x.strides()[1];  // as heads of a linear layer lie: so does the result
  Tensor result =
      rows_outside ? Tensor::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.shared_device(), x.dtype())
                         .transpose(1, 2)
                   : Tensor::empty(x.shape(), x.shared_device(), x.dtype());
  x.device().kernels().rotary(x.view(), cosines.view(), sines.view(), interleaved, back, result.view());
  if (!recording(x)) return result;
  return record("rotary embedding", std::move(result), {x},
                [cosines = Saved::input(cosines), sines = Saved::input(sines), interleaved, back](
                    const Tensor& given, GradSink& sink) {
                  const Tensor grad =
                      given.size(3) > 1 && given.strides()[3] != 1 ? given.contiguous() : given;
                  sink.deliver(0, turned(grad, cosines.get(sink), sines.get(sink), interleaved, !back));
                });
}

}  // namespace

Tensor rotary_embedding(const Tensor& given, const Tensor& cosines, const Tensor& sines, bool interleaved) {
  check_floating("rotary_embedding", given);
  const DType exact = given.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Dims& table = cosines.shape();
  const bool fits = given.rank() >= 3 && (table.rank() == 2 || table.rank() == 3) && sines.shape() == table &&
                    table[table.rank() - 2] == given.size(-2) && 2 * table.back() <= given.size(-1) &&
                    (table.rank() == 2 || table[0] == given.size(0)) && cosines.dtype() == exact &&
                    sines.dtype() == exact;
  if (!fits) {
    throw UsageError(
        "rotary_embedding: expected x [B, …, L, E] and cosines and sines [L, P] or [B, L, P] of " +
        std::string(name_of(exact)) + " with at most E / 2 pairs, got " + given.describe() + ", " +
        cosines.describe() + " and " + sines.describe());
  }
  const std::int64_t batch = given.size(0), length = given.size(-2), width = given.size(-1);
  const auto by_row = [&](const Tensor& x) { return x.expand({batch, length, x.size(-1)}).detach(); };
  Tensor x = given.rank() == 3 ? given.unsqueeze(1) : given;
  if (x.rank() > 4) x = x.reshape({batch, -1, length, width});
  if (width > 1 && x.strides()[3] != 1) x = x.contiguous();
  return turned(x, by_row(cosines), by_row(sines), interleaved, false).reshape(given.shape());
}

}  // namespace dtrain
