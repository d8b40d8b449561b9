// Views: other shapes and strides over the same memory. Each tells autograd its adjoint.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

/// A view of equal elements in another shape; its adjoint restores the shape.
Tensor reshaped(std::string_view name, const Tensor& from, const Dims& shape, const Dims& strides) {
  return record_linear(name, from, from.alias(from.view().data, shape, strides),
                       [before = from.shape()](const Tensor& grad) { return grad.reshape(before); });
}

void* offset(const View& view, std::int64_t elements) {
  return static_cast<std::byte*>(view.data) + elements * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Zeros of `shape` with `part` at positions start, start + step, … along `dim`: the adjoint of slice.
Tensor embed(const Tensor& part, const Dims& shape, int dim, std::int64_t start, std::int64_t step) {
  Tensor whole = Tensor::zeros(shape, part.shared_device(), part.dtype());
  View hole = whole.view();
  hole.data = offset(hole, start * hole.strides[dim]);
  hole.shape = part.shape();
  if (part.shape()[dim] > 1) hole.strides[dim] *= step;
  part.device().kernels().copy(part.view(), hole);
  const std::int64_t end = part.shape()[dim] == 0 ? start : start + (part.shape()[dim] - 1) * step + 1;
  return record_linear("slice backward", part, whole, [dim, start, end, step](const Tensor& grad) {
    return grad.slice(dim, start, end, step);
  });
}

Dims without(const Dims& dims, int skip) {
  Dims result;
  for (int i = 0; i < dims.rank(); ++i) {
    if (i != skip) result.push_back(dims[i]);
  }
  return result;
}

}  // namespace

Tensor Tensor::view(const Dims& new_shape) const {
  const Dims target = infer_shape(new_shape, numel(), "view of " + describe());
  check_extents("view: shape", target);
  const auto strides_now = strides_for_view(view(), target);
  if (!strides_now) {
    throw UsageError("view: " + describe() + " with strides " + strides().to_string() +
                     " cannot be seen as " + target.to_string() + " without a copy: use reshape()");
  }
  return reshaped("view", *this, target, *strides_now);
}

Tensor Tensor::reshape(const Dims& new_shape) const {
  const Dims target = infer_shape(new_shape, numel(), "reshape of " + describe());
  if (target == shape()) return *this;
  check_extents("reshape: shape", target);
  if (const auto strides_now = strides_for_view(view(), target)) {
    return reshaped("reshape", *this, target, *strides_now);
  }
  return contiguous().view(target);
}

Tensor Tensor::flatten(int first, int last) const {
  if (rank() == 0) return reshape({1});
  const int from = normalize_dim(first, rank(), "flatten"), to = normalize_dim(last, rank(), "flatten");
  if (from > to) {
    throw UsageError("flatten: first dimension " + std::to_string(first) + " comes after last " +
                     std::to_string(last) + " in shape " + shape().to_string());
  }
  Dims merged;
  std::int64_t product = 1;
  for (int i = 0; i < rank(); ++i) {
    if (i < from || i > to) {
      merged.push_back(shape()[i]);
    } else {
      product *= shape()[i];
      if (i == to) merged.push_back(product);
    }
  }
  return reshape(merged);
}

Tensor Tensor::squeeze() const {
  Dims kept, kept_strides;
  for (int i = 0; i < rank(); ++i) {
    if (shape()[i] == 1) continue;
    kept.push_back(shape()[i]);
    kept_strides.push_back(strides()[i]);
  }
  return reshaped("squeeze", *this, kept, kept_strides);
}

Tensor Tensor::squeeze(int dim) const {
  const int index = normalize_dim(dim, rank(), "squeeze");
  if (shape()[index] != 1) return *this;
  return reshaped("squeeze", *this, without(shape(), index), without(strides(), index));
}

Tensor Tensor::unsqueeze(int dim) const {
  const int index = normalize_dim(dim, rank() + 1, "unsqueeze");
  Dims grown, grown_strides;
  for (int i = 0; i <= rank(); ++i) {
    if (i == index) {
      grown.push_back(1);
      grown_strides.push_back(i < rank() ? shape()[i] * strides()[i] : 1);
    }
    if (i < rank()) {
      grown.push_back(shape()[i]);
      grown_strides.push_back(strides()[i]);
    }
  }
  return reshaped("unsqueeze", *this, grown, grown_strides);
}

Tensor Tensor::transpose(int a, int b) const {
  const int first = normalize_dim(a, rank(), "transpose"), second = normalize_dim(b, rank(), "transpose");
  Dims swapped = shape(), swapped_strides = strides();
  std::swap(swapped[first], swapped[second]);
  std::swap(swapped_strides[first], swapped_strides[second]);
  return record_linear("transpose", *this, alias(view().data, swapped, swapped_strides),
                       [first, second](const Tensor& grad) { return grad.transpose(first, second); });
}

Tensor Tensor::permute(const Dims& order) const {
  Dims inverse = Dims::filled(rank(), -1), ordered, ordered_strides;
  bool valid = order.rank() == rank();
  for (int i = 0; valid && i < rank(); ++i) {
    const std::int64_t place = order[i] < 0 ? order[i] + rank() : order[i];
    const int from = place >= 0 && place < rank() ? static_cast<int>(place) : -1;
    valid = from >= 0 && inverse[from] == -1;
    if (!valid) break;
    inverse[from] = i;
    ordered.push_back(shape()[from]);
    ordered_strides.push_back(strides()[from]);
  }
  if (!valid) {
    throw UsageError("permute: expected each dimension of " + shape().to_string() + " once, got " +
                     order.to_string());
  }
  return record_linear("permute", *this, alias(view().data, ordered, ordered_strides),
                       [inverse](const Tensor& grad) { return grad.permute(inverse); });
}

Tensor Tensor::expand(const Dims& new_shape) const {
  Dims target = new_shape;
  for (int i = 0, own = rank() - target.rank(); i < target.rank(); ++i, ++own) {
    if (target[i] == -1 && own >= 0) target[i] = shape()[own];
  }
  if (target == shape()) return *this;
  check_extents("expand: shape", target);
  const auto strides_now = strides_for_expand(view(), target);
  if (!strides_now) {
    throw UsageError("expand: shape " + shape().to_string() + " does not broadcast to " +
                     new_shape.to_string());
  }
  return record_linear("expand", *this, alias(view().data, target, *strides_now),
                       [before = shape()](const Tensor& grad) { return grad.sum_to(before); });
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const int along = normalize_dim(dim, rank(), "select");
  const std::int64_t extent = shape()[along], position = index < 0 ? index + extent : index;
  if (position < 0 || position >= extent) {
    throw UsageError("select: index " + std::to_string(index) + " is outside dimension " +
                     std::to_string(dim) + " of shape " + shape().to_string());
  }
  return slice(along, position, position + 1).squeeze(along);
}

Tensor Tensor::index(std::initializer_list<Taken> places) const {
  if (places.size() > static_cast<std::size_t>(rank())) {
    throw UsageError("index: expected at most " + std::to_string(rank()) + " places for " + describe() +
                     ", got " + std::to_string(places.size()));
  }
  Tensor part = *this;
  int dim = 0;
  for (const Taken& place : places) {
    if (const auto* along = std::get_if<Slice>(&place)) {
      part = part.slice(dim++, along->first, along->end, along->step);
    } else {
      part = part.select(dim, std::get<std::int64_t>(place));
    }
  }
  return part;
}

Tensor Tensor::T() const {
  if (rank() < 2) return *this;
  if (rank() == 2) return transpose(0, 1);
  throw UsageError("T: expected a matrix, got " + describe() +
                   "; transpose(-2, -1) exchanges the last two dimensions, permute() any");
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  const int along = normalize_dim(dim, rank(), "slice");
  if (step < 1) throw UsageError("slice: step must be at least 1, got " + std::to_string(step));
  const std::int64_t extent = shape()[along];
  const std::int64_t from = std::clamp<std::int64_t>(start < 0 ? start + extent : start, 0, extent);
  const std::int64_t to = std::clamp<std::int64_t>(end < 0 ? end + extent : end, from, extent);
  Dims part = shape(), part_strides = strides();
  part[along] = to == from ? 0 : (to - from - 1) / step + 1;
  if (part[along] > 1) part_strides[along] *= step;
  return record_linear("slice", *this, alias(offset(view(), from * strides()[along]), part, part_strides),
                       [before = shape(), along, from, step](const Tensor& grad) {
                         return embed(grad, before, along, from, step);
                       });
}

}  // namespace dtrain
