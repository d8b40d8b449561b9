// Comparisons as operators, a += b and kin, and the members of Tensor that are functions of ops.h: they are
// defined here because tensor/ does not know the tape.
#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

using Comparison = Tensor (*)(const Tensor&, const Tensor&);

/// `compares` a and b as bool. Kernels know floats and int64.
Tensor compare(Comparison compares, const Tensor& a, const Tensor& b) {
  if (autocast_mixes(a, b)) return compare(compares, autocast_full(a), autocast_full(b));
  const bool whole = !is_floating(a.dtype()) && a.dtype() == b.dtype();
  const Tensor result =
      whole ? compares(a.to(DType::i64), b.to(DType::i64)) : compares(a.detach(), b.detach());
  return result.to(DType::boolean);
}

Tensor compare(Comparison compares, const Tensor& a, Number b) {
  if (!is_floating(a.dtype()) && b.is_whole()) {
    const Tensor number = Tensor::from_data({b.whole()}, {}, a.shared_device());
    return compares(a.to(DType::i64), number).to(DType::boolean);
  }
  const Tensor x = is_floating(a.dtype()) ? a.detach() : a.to(DType::f32);
  return compares(x, Tensor::full({}, b.real(), x.shared_device(), x.dtype())).to(DType::boolean);
}

}  // namespace

Tensor operator==(const Tensor& a, const Tensor& b) { return compare(equal, a, b); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return compare(not_equal, a, b); }
Tensor operator>(const Tensor& a, const Tensor& b) { return compare(greater, a, b); }
Tensor operator>=(const Tensor& a, const Tensor& b) { return compare(greater_equal, a, b); }
Tensor operator==(const Tensor& a, Number b) { return compare(equal, a, b); }
Tensor operator!=(const Tensor& a, Number b) { return compare(not_equal, a, b); }
Tensor operator>(const Tensor& a, Number b) { return compare(greater, a, b); }
Tensor operator>=(const Tensor& a, Number b) { return compare(greater_equal, a, b); }
Tensor operator<(const Tensor& a, Number b) { return compare(less, a, b); }
Tensor operator<=(const Tensor& a, Number b) { return compare(less_equal, a, b); }

struct Tensor::InPlace {
  std::string_view name;
  Tensor& target;

  /// `function` of the target, in the place of the target: `kernel` writes it there where nothing is recorded
  /// and the target is of a floating dtype.
  template <class Function, class Kernel>
  Tensor& become(const Tensor& other, const Function& function, const Kernel& kernel) const {
    if (!recording({target, other})) {
      check_no_overlap(name, target);
      if (is_floating(target.dtype())) {
        kernel();
        target.mark_modified();
      } else {
        target.copy_from(checked(function()));
      }
      return target;
    }
    const bool is_parameter = target.requires_grad() && target.is_leaf();
    if (is_parameter || !target.is_only_view()) check_in_place(name, target, other);
    return target = checked(function());
  }

  Tensor checked(Tensor result) const {
    if (result.dtype() == target.dtype() && result.shape() == target.shape()) return result;
    throw UsageError(std::string(name) + ": " + target.describe() + " cannot become " + result.describe() +
                     " in place; make a new tensor, as with a = a + b");
  }

  using OfTwo = Tensor (*)(const Tensor&, const Tensor&);
  Tensor& apply(BinaryOp op, OfTwo function, const Tensor& other) const {
    if (autocast_mixes(target, other)) {
      const auto in_full = [&] {
        return function(autocast_full(target), autocast_full(other)).to(target.dtype());
      };
      return become(other, in_full, [&] { target.copy_from(checked(in_full())); });
    }
    check_same_kind(name, target, other);
    return become(
        other, [&] { return function(target, other); },
        [&] {
          const std::optional<Dims> strides = strides_for_expand(other.view(), target.shape());
          if (!strides) checked(function(target.detach(), other.detach()));  // throws
          const bool same = other.view().data == target.view().data && *strides == target.strides();
          const Tensor source =
              !same && other.shares_storage(target) ? other.detach().clone() : other.detach();
          const Tensor right = source.expand(target.shape());
          target.device().kernels().binary(op, target.view(), right.view(), target.view());
        });
  }

  using OfNumber = Tensor (*)(const Tensor&, Number);
  Tensor& apply(OfNumber function, Number other, double scale, double shift) const {
    return become(
        {}, [&] { return function(target, other); },
        [&] { target.device().kernels().affine(target.view(), scale, shift, target.view()); });
  }
};

Tensor& Tensor::operator+=(const Tensor& other) {
  return InPlace{"+=", *this}.apply(BinaryOp::add, add, other);
}
Tensor& Tensor::operator-=(const Tensor& other) {
  return InPlace{"-=", *this}.apply(BinaryOp::sub, sub, other);
}
Tensor& Tensor::operator*=(const Tensor& other) {
  return InPlace{"*=", *this}.apply(BinaryOp::mul, mul, other);
}
Tensor& Tensor::operator/=(const Tensor& other) {
  return InPlace{"/=", *this}.apply(BinaryOp::div, div, other);
}
// As in add(), mul() and div(); + 0 would turn -0 into 0.
Tensor& Tensor::operator+=(Number other) { return InPlace{"+=", *this}.apply(add, other, 1, other.real()); }
Tensor& Tensor::operator-=(Number other) { return InPlace{"-=", *this}.apply(sub, other, 1, -other.real()); }
Tensor& Tensor::operator*=(Number other) {
  return InPlace{"*=", *this}.apply(mul, other, other.real(), -0.0);
}
Tensor& Tensor::operator/=(Number other) {
  if (differs_from_product(dtype(), other))
    return InPlace{"/=", *this}.apply(BinaryOp::div, div,
                                      Tensor::full({}, other.real(), shared_device(), dtype()));
  return InPlace{"/=", *this}.apply(div, other, 1.0 / other.real(), -0.0);
}

Tensor Tensor::abs() const { return dtrain::abs(*this); }
Tensor Tensor::exp() const { return dtrain::exp(*this); }
Tensor Tensor::log() const { return dtrain::log(*this); }
Tensor Tensor::sqrt() const { return dtrain::sqrt(*this); }
Tensor Tensor::pow(Number exponent) const { return dtrain::pow(*this, exponent); }
Tensor Tensor::matmul(const Tensor& other) const { return dtrain::matmul(*this, other); }
Tensor Tensor::cumsum(int dim) const { return dtrain::cumsum(*this, dim); }
Tensor Tensor::masked_fill(const Tensor& mask, Number value) const {
  return dtrain::masked_fill(*this, mask, value);
}
Tensor Tensor::norm(double order) const { return dtrain::norm(*this, order); }
Tensor Tensor::prod() const { return dtrain::prod(*this); }
Tensor Tensor::sum(const Dims& dims, bool keep) const { return dtrain::sum(*this, dims, keep); }
Tensor Tensor::mean(const Dims& dims, bool keep) const { return dtrain::mean(*this, dims, keep); }
Tensor Tensor::var(const Dims& dims, double correction, bool keep) const {
  return dtrain::var(*this, dims, correction, keep);
}
Tensor Tensor::std(const Dims& dims, double correction, bool keep) const {
  return dtrain::std(*this, dims, correction, keep);
}
Tensor Tensor::max() const { return amax(*this, {}); }
Tensor Tensor::min() const { return amin(*this, {}); }
Sorted Tensor::max(int dim, bool keep) const { return dtrain::max(*this, dim, keep); }
Sorted Tensor::min(int dim, bool keep) const { return dtrain::min(*this, dim, keep); }
Tensor Tensor::argmax(int dim, bool keep) const { return dtrain::argmax(*this, dim, keep); }
Tensor Tensor::argmin(int dim, bool keep) const { return dtrain::argmin(*this, dim, keep); }

}  // namespace dtrain
