// Copies between layouts, dtypes and devices, gathers, and the few in-place operations.
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/between.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

Tensor identity(const Tensor& grad) { return grad; }

/// Zeros of `shape` to which row i of `rows` has been added at index[i]: the adjoint of index_select.
Tensor scatter_rows(const Tensor& rows, const Tensor& index, const Dims& shape) {
  Tensor result = Tensor::zeros(shape, rows.shared_device(), rows.dtype());
  const Tensor dense = rows.contiguous();
  rows.device().kernels().index_add(dense.view(), index.view(), result.view());
  return record_linear("index_select backward", rows, result,
                       [index](const Tensor& grad) { return grad.index_select(0, index); });
}

/// `source` as something that can be read while `target` is written.
Tensor source_for(std::string_view name, const Tensor& target, const Tensor& source) {
  check_same_device(name, target, source);
  if (!strides_for_expand(source.view(), target.shape())) {
    throw UsageError(std::string(name) + ": " + source.describe() + " does not broadcast to " +
                     target.shape().to_string());
  }
  Tensor plain = source.detach();
  if (plain.shares_storage(target)) plain = plain.clone();
  return plain.to(target.dtype()).expand(target.shape());
}

}  // namespace

Tensor Tensor::contiguous(MemoryFormat format) const {
  if (is_contiguous(format)) return *this;
  Tensor result = empty(shape(), shared_device(), dtype(), format);
  device().kernels().copy(view(), result.view());
  return record_linear("contiguous", *this, result, identity);
}

Tensor Tensor::clone() const {
  Tensor result = empty(shape(), shared_device(), dtype(), memory_format());
  device().kernels().copy(view(), result.view());
  return record_linear("clone", *this, result, identity);
}

Tensor Tensor::to(DType target) const {
  if (target == dtype()) return *this;
  Tensor result = empty(shape(), shared_device(), target, memory_format());
  device().kernels().copy(view(), result.view());
  if (!is_floating(target)) return result;
  return record_linear("to", *this, result,
                       [before = dtype()](const Tensor& grad) { return grad.to(before); });
}

Tensor Tensor::to(const std::shared_ptr<Device>& target) const {
  if (target == nullptr) throw UsageError("to: expected a device, got null");
  if (target == shared_device()) return *this;
  const Tensor dense = detach().contiguous(memory_format());
  Tensor result = empty(shape(), target, dtype(), memory_format());
  copy_between(device(), dense.view().data, *target, result.view().data,
               static_cast<std::size_t>(numel()) * size_of(dtype()));
  return record_linear(
      "to", *this, result, [before = shared_device()](const Tensor& grad) { return grad.to(before); }, false);
}

Tensor Tensor::index_select(int dim, const Tensor& index) const {
  const int along = normalize_dim(dim, rank(), "index_select");
  if (index.dtype() != DType::i64 || index.rank() != 1) {
    throw UsageError("index_select: expected an index of int64 [n], got " + index.describe());
  }
  check_same_device("index_select", *this, index);
  if (along != 0) return transpose(0, along).index_select(0, index).transpose(0, along);
  const Tensor rows = contiguous();
  const Tensor order = index.contiguous();
  Dims selected = shape();
  selected[0] = index.numel();
  Tensor result = empty(selected, shared_device(), dtype());
  device().kernels().index_select(rows.view(), order.view(), result.view());
  return record_linear("index_select", rows, result,
                       [order, version = order.version(), before = shape()](const Tensor& grad) {
                         if (order.version() != version) {
                           throw UsageError("index_select: its index was modified in place before backward");
                         }
                         return scatter_rows(grad, order, before);
                       });
}

Tensor Tensor::sum_to(const Dims& target) const {
  if (target == shape()) return *this;
  const int missing = rank() - target.rank();
  Dims kept = Dims::filled(rank(), 1);
  for (int i = 0; i < target.rank(); ++i) {
    const int from = i + missing;
    if (missing < 0 || (target[i] != 1 && target[i] != shape()[from])) {
      throw UsageError("sum_to: " + shape().to_string() + " was not broadcast from " + target.to_string());
    }
    kept[from] = target[i];
  }
  Tensor result = empty(kept, shared_device(), dtype());
  device().kernels().reduce(Reduction::sum, view(), result.view());
  result = record_linear("sum", *this, result,
                         [before = shape()](const Tensor& grad) { return grad.expand(before); });
  return result.reshape(target);
}

void Tensor::fill(Number value) {
  check_in_place("fill", *this, {});
  check_no_overlap("fill", *this);
  if (dtype() == DType::i64 && value.needs_int64()) {  // kernels take a double
    const Tensor one = from_data({value.whole()}, {}, shared_device());
    device().kernels().copy(one.expand(shape()).view(), view());
  } else {
    device().kernels().fill(view(), value.real());
  }
  mark_modified();
}

void Tensor::copy_from(const Tensor& source) {
  check_in_place("copy_from", *this, source);
  check_no_overlap("copy_from", *this);
  device().kernels().copy(source_for("copy_from", *this, source).view(), view());
  mark_modified();
}

void Tensor::copy_across(const Tensor& source) {
  const bool alike = dtype() == source.dtype() && shape() == source.shape() && strides() == source.strides();
  const bool dense = is_contiguous() || is_contiguous(MemoryFormat::channels_last);
  if (!alike || !dense) return copy_from(source.detach().to(shared_device()));
  check_in_place("copy_across", *this, {});
  copy_between(source.device(), source.view().data, device(), view().data,
               static_cast<std::size_t>(numel()) * size_of(dtype()));
  mark_modified();
}

void Tensor::add_in_place(const Tensor& other, double scale) {
  check_in_place("add_in_place", *this, other);
  check_no_overlap("add_in_place", *this);
  const Tensor addend = source_for("add_in_place", *this, other);
  if (view().is_contiguous() || view().is_channels_last()) {
    device().kernels().accumulate(addend.view(), scale, view());
  } else {  // kernels accumulate into dense memory only
    const Tensor dense = detach().clone();
    device().kernels().accumulate(addend.view(), scale, dense.view());
    device().kernels().copy(dense.view(), view());
  }
  mark_modified();
}

void Tensor::scale_in_place(double scale) {
  check_in_place("scale_in_place", *this, {});
  check_no_overlap("scale_in_place", *this);
  device().kernels().affine(view(), scale, -0.0, view());  // + 0 would turn -0 into 0
  mark_modified();
}

}  // namespace dtrain
