// matmul, convolution and pooling: hands the work to the fastest code that can do it.
#include "runtime/device/cpu/convolution/winograd.h"
#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"
#include "runtime/device/cpu/pool/pool_rows.h"
#include "runtime/device/cpu/scratch.h"

namespace dtrain::cpu {
namespace {

/// Or not there at all.
bool is_dense_f32(const View& parameter) {
  return parameter.data == nullptr || (parameter.dtype == DType::f32 && parameter.is_contiguous());
}

/// Whether each stride steps over all that lies inside it, broadcasts and extents of 1 aside: what libraries
/// take for a layout. Every second of five columns is not like that: strides (5, 2) interleave in [N, 3].
bool is_nested(const View& view) {
  std::int64_t inside = 1;
  for (Dims left = view.strides;;) {
    int next = -1;
    for (int i = 0; i < view.rank(); ++i) {
      if (view.shape[i] > 1 && left[i] > 0 && (next < 0 || left[i] < left[next])) next = i;
    }
    if (next < 0) return true;
    if (left[next] < inside) return false;
    inside = left[next] * view.shape[next];
    left[next] = 0;
  }
}

/// An array as a function wants it: the one given where it is like that, else a dense copy of it, or memory
/// for a result that finish() copies back. Null data stays null.
class Staged {
 public:
  /// Dense and in the dtype the function works in.
  Staged(CpuKernels& kernels, const View& view, DType dtype, bool read)
      : Staged(kernels, view, dtype, read, view.dtype == dtype && view.is_contiguous()) {}
  /// As it is where it `fits`.
  Staged(CpuKernels& kernels, const View& view, DType dtype, bool read, bool fits)
      : kernels_(kernels), given_(view), used_(view) {
    if (view.data == nullptr || fits) return;
    const auto bytes = static_cast<std::size_t>(view.numel()) * size_of(dtype);
    used_ = {memory_.at_least(bytes), dtype, view.shape, contiguous_strides(view.shape)};
    if (read) kernels_.copy(given_, used_);
  }
  const View& view() const { return used_; }
  void finish() {
    if (used_.data != given_.data) kernels_.copy(used_, given_);
  }

 private:
  CpuKernels& kernels_;
  View given_, used_;
  Scratch memory_;
};

/// Whether its elements are all that lies between its first and its last.
bool is_packed(const View& view) {
  std::int64_t last = 0;
  for (int i = 0; i < view.rank(); ++i) last += (view.shape[i] - 1) * view.strides[i];
  return view.numel() == last + 1 && is_nested(view);
}

View flat(const View& view) { return {view.data, view.dtype, {view.numel()}, {1}}; }

/// An array in f32, where no library of this processor computes in its own type: of the same layout if it is
/// packed. Sums are f32 then, and rounded once by finish(), as in products of halves. Null data stays null,
/// and nothing is copied of an array without elements.
class Widened {
 public:
  Widened(CpuKernels& kernels, const View& view, bool read, Scratch& memory)
      : kernels_(kernels), given_(view), used_(view), flat_(view.data != nullptr && is_packed(view)) {
    used_.dtype = DType::f32;
    if (view.dtype == DType::f32 || view.data == nullptr || view.numel() == 0) return;
    used_.data = memory.at_least(static_cast<std::size_t>(view.numel()) * sizeof(float));
    if (!flat_) used_.strides = contiguous_strides(view.shape);
    if (read) copy(given_, used_);
  }
  const View& view() const { return used_; }
  void finish() {
    if (used_.data != given_.data) copy(used_, given_);
  }

 private:
  void copy(const View& from, const View& to) {
    flat_ ? kernels_.copy(flat(from), flat(to)) : kernels_.copy(from, to);
  }

  CpuKernels& kernels_;
  View given_, used_;
  bool flat_;
};

/// Whether a kernel of one pixel leaves some pixels out.
bool skips_pixels(const Conv2dGeometry& g, const View& weight) {
  return weight.shape[2] == 1 && weight.shape[3] == 1 && g.pad_h == 0 && g.pad_w == 0 &&
         (g.stride_h > 1 || g.stride_w > 1);
}

/// The pixels that such a kernel meets, as an image of its own: its convolution has a stride of 1.
View met_pixels(const Conv2dGeometry& g, const View& input, const View& output) {
  View met = input;
  met.shape[2] = output.shape[2];
  met.shape[3] = output.shape[3];
  met.strides[2] *= g.stride_h;
  met.strides[3] *= g.stride_w;
  return met;
}

}  // namespace

bool CpuKernels::fast_matmul(const View& a, const View& b, const View& bias, bool accumulate,
                             const View& out) {
  if (a.shape[2] == 0) return false;
  const Staged left(*this, a, a.dtype, true, is_nested(a)), right(*this, b, b.dtype, true, is_nested(b));
  Staged result(*this, out, out.dtype, accumulate, is_nested(out));
  if (!math_->matmul(left.view(), right.view(), bias, accumulate, result.view())) return false;
  result.finish();
  return true;
}

void CpuKernels::matmul(const View& a, const View& b, const View& given_bias, Activation activation,
                        bool accumulate, const View& out) {
  if (out.numel() == 0) return;
  const Staged dense_bias(*this, given_bias, given_bias.dtype, true);
  const View& bias = dense_bias.view();
  if (fast_matmul(a, b, bias, accumulate, out)) {
    if (activation == Activation::relu) unary(UnaryOp::relu, out, out);
    return;
  }
  if (!is_half(a.dtype)) return naive::matmul(a, b, bias, activation, accumulate, out);
  const Widened left(*this, a, true, widened_[0]), right(*this, b, true, widened_[1]),
      shift(*this, bias, true, widened_[2]);
  Widened to(*this, out, accumulate, widened_[3]);
  matmul(left.view(), right.view(), shift.view(), activation, accumulate, to.view());
  to.finish();
}

bool CpuKernels::fast_conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight,
                             const View& bias, const View& output) {
  if (is_dense_f32(bias) && winograd_can(geometry, input, weight, output)) {
    winograd_forward(input, weight, bias, output, winograd_scratch_);
    return true;
  }
  return math_->conv2d(geometry, input, weight, bias, output);
}

void CpuKernels::conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight,
                        const View& given_bias, Activation activation, const View& output) {
  if (output.numel() == 0) return;
  const Staged dense_bias(*this, given_bias, given_bias.dtype, true);
  const View& bias = dense_bias.view();
  if (input.numel() != 0 && fast_conv2d(geometry, input, weight, bias, output)) {
    if (activation == Activation::relu) unary(UnaryOp::relu, output, output);
    return;
  }
  if (!is_half(input.dtype)) return naive::conv2d(geometry, input, weight, bias, activation, output);
  const Widened x(*this, input, true, widened_[0]), w(*this, weight, true, widened_[1]),
      shift(*this, bias, true, widened_[2]);
  Widened to(*this, output, false, widened_[3]);
  conv2d(geometry, x.view(), w.view(), shift.view(), activation, to.view());
  to.finish();
}

void CpuKernels::conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output,
                                       const View& weight, const View& grad_input) {
  if (grad_input.numel() == 0) return;
  if (grad_output.numel() != 0 && winograd_can(geometry, grad_input, weight, grad_output)) {
    return winograd_backward_input(grad_output, weight, grad_input, winograd_scratch_);
  }
  if (grad_output.numel() != 0 && math_->conv2d_backward_input(geometry, grad_output, weight, grad_input))
    return;
  if (!is_half(grad_input.dtype))
    return naive::conv2d_backward_input(geometry, grad_output, weight, grad_input);
  const Widened dy(*this, grad_output, true, widened_[0]), w(*this, weight, true, widened_[1]);
  Widened dx(*this, grad_input, false, widened_[3]);
  conv2d_backward_input(geometry, dy.view(), w.view(), dx.view());
  dx.finish();
}

void CpuKernels::conv2d_backward_input_add(const Conv2dGeometry& geometry, const View& grad_output,
                                           const View& weight, const View& grad_input) {
  View apart = grad_input;
  apart.data =
      input_staging_.at_least(static_cast<std::size_t>(grad_input.numel()) * size_of(grad_input.dtype));
  conv2d_backward_input(geometry, grad_output, weight, apart);
  accumulate(apart, 1.0, grad_input);
}

void CpuKernels::conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input,
                                        const View& grad_output, const View& grad_weight,
                                        const View& given_grad_bias) {
  Staged dense_bias(*this, given_grad_bias, given_grad_bias.dtype, false);
  weight_gradients(geometry, input, grad_output, grad_weight, dense_bias.view());
  dense_bias.finish();
}

void CpuKernels::weight_gradients(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                                  const View& grad_weight, const View& grad_bias) {
  // Padding alone makes an output of an image without pixels, of which libraries read what is not there.
  const bool any = input.numel() != 0 && grad_output.numel() != 0 && grad_weight.numel() != 0;
  if (any && is_dense_f32(grad_weight) && is_dense_f32(grad_bias) &&
      winograd_can(geometry, input, grad_weight, grad_output)) {
    return winograd_backward_weight(input, grad_output, grad_weight, grad_bias, winograd_scratch_);
  }
  if (any && math_->conv2d_backward_weight(geometry, input, grad_output, grad_weight, grad_bias)) return;
  if (any && skips_pixels(geometry, grad_weight)) {
    const Staged met(*this, met_pixels(geometry, input, grad_output), input.dtype, true);
    return weight_gradients({.groups = geometry.groups}, met.view(), grad_output, grad_weight, grad_bias);
  }
  if (!is_half(input.dtype))
    return naive::conv2d_backward_weight(geometry, input, grad_output, grad_weight, grad_bias);
  const Widened x(*this, input, true, widened_[0]), dy(*this, grad_output, true, widened_[1]);
  Widened dw(*this, grad_weight, false, widened_[2]), db(*this, grad_bias, false, widened_[3]);
  weight_gradients(geometry, x.view(), dy.view(), dw.view(), db.view());
  dw.finish();
  db.finish();
}

void CpuKernels::pool2d(const Pool2dGeometry& geometry, const View& input, const View& output,
                        const View& indices) {
  if (output.numel() == 0) return;
  if (can_pool_rows(input, output, indices)) {
    const PoolMode max_mode = indices.data == nullptr ? PoolMode::max : PoolMode::max_places;
    return pool_rows(geometry.kind == PoolKind::avg ? PoolMode::avg : max_mode, geometry, input, output,
                     geometry.kind == PoolKind::avg ? View{} : indices);
  }
  naive::pool2d(geometry, input, output, indices);
}

void CpuKernels::pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                                 const View& grad_input) {
  if (grad_input.numel() == 0) return;
  const bool average = geometry.kind == PoolKind::avg;
  if (can_pool_rows(grad_input, grad_output, average ? View{} : indices)) {
    return pool_rows_backward(average ? PoolMode::avg : PoolMode::max_places, geometry, grad_output,
                              average ? View{} : indices, grad_input);
  }
  naive::pool2d_backward(geometry, grad_output, indices, grad_input);
}

}  // namespace dtrain::cpu
