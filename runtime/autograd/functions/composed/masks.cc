// The functions of ops/masks.h.
#include "runtime/autograd/ops/masks.h"

#include <limits>
#include <string>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor everywhere(const Tensor& x, bool value) { return Tensor::full_like(x, value ? 1 : 0, DType::boolean); }

/// Where column - row of the last two dimensions is at most, or at least, `diagonal`.
Tensor triangle(std::string_view name, const Tensor& x, std::int64_t diagonal, bool lower) {
  if (x.rank() < 2) {
    throw UsageError(std::string(name) + ": expected at least two dimensions, got " + x.describe());
  }
  const Tensor rows = Tensor::arange(x.size(-2), x.shared_device()).unsqueeze(1),
               columns = Tensor::arange(x.size(-1), x.shared_device());
  const Tensor places = sub(columns, rows), limit = Tensor::from_data({diagonal}, {}, x.shared_device());
  return lower ? places <= limit : places >= limit;
}

Tensor part(const Tensor& x, const Tensor& mask) {
  return where(mask, x, Tensor::zeros({}, x.shared_device(), x.dtype()));
}

}  // namespace

Tensor isnan(const Tensor& x) { return is_floating(x.dtype()) ? x != x : everywhere(x, false); }

Tensor isinf(const Tensor& x) {
  return is_floating(x.dtype()) ? abs(x.detach()) == kInfinity : everywhere(x, false);
}

Tensor isfinite(const Tensor& x) {
  return is_floating(x.dtype()) ? abs(x.detach()) < kInfinity : everywhere(x, true);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value) {
  if (mask.dtype() != DType::boolean || !strides_for_expand(mask.view(), x.shape())) {
    throw UsageError("masked_fill: expected a bool mask that broadcasts to " + x.describe() + ", got " +
                     mask.describe());
  }
  if (!is_floating(x.dtype()) && !value.is_whole()) {
    throw UsageError("masked_fill: expected a whole number for " + x.describe() + ", got " +
                     std::to_string(value.real()));
  }
  const Tensor filling = value.is_whole()
                             ? Tensor::from_data({value.whole()}, {}, x.shared_device()).to(x.dtype())
                             : Tensor::full({}, value.real(), x.shared_device(), x.dtype());
  return where(mask, filling, x);
}

Tensor tril(const Tensor& x, std::int64_t diagonal) { return part(x, triangle("tril", x, diagonal, true)); }

Tensor triu(const Tensor& x, std::int64_t diagonal) { return part(x, triangle("triu", x, diagonal, false)); }

}  // namespace dtrain
