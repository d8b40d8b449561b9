// 2-D convolution and its gradients in plain loops over any strides. Every sum gathers, so that each output
// element is written once and always in the same order.
#include <algorithm>

#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"

namespace dtrain::cpu::naive {
namespace {

/// A rank-4 array of T addressed by its four indices.
template <class T>
struct Array4 {
  explicit Array4(const View& view) : data(view.as<T>()), strides(view.strides) {}
  T& operator()(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return data[i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3]];
  }
  T* data;
  Dims strides;
};

/// The range of output positions o for which o · stride + offset lies in [0, extent).
struct Range {
  std::int64_t begin, end;
};

Range valid_outputs(std::int64_t outputs, std::int64_t stride, std::int64_t offset, std::int64_t extent) {
  const std::int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int64_t last = extent - 1 - offset;
  const std::int64_t end = last < 0 ? 0 : std::min(outputs, last / stride + 1);
  return {begin, std::max(begin, end)};
}

template <class T>
double forward_at(const Conv2dGeometry& g, const View& input, const View& weight, std::int64_t n,
                  std::int64_t o, std::int64_t oh, std::int64_t ow) {
  const Array4<const T> x(input), w(weight);
  const std::int64_t channels = weight.shape[1], first = o / (weight.shape[0] / g.groups) * channels;
  double sum = 0;
  for (std::int64_t kh = 0; kh < weight.shape[2]; ++kh) {
    const std::int64_t h = oh * g.stride_h - g.pad_h + kh * g.dilation_h;
    if (h < 0 || h >= input.shape[2]) continue;
    for (std::int64_t kw = 0; kw < weight.shape[3]; ++kw) {
      const std::int64_t v = ow * g.stride_w - g.pad_w + kw * g.dilation_w;
      if (v < 0 || v >= input.shape[3]) continue;
      for (std::int64_t c = 0; c < channels; ++c) {
        sum += static_cast<double>(load(x(n, first + c, h, v))) * static_cast<double>(load(w(o, c, kh, kw)));
      }
    }
  }
  return sum;
}

template <class T>
double input_gradient_at(const Conv2dGeometry& g, const View& grad_output, const View& weight, std::int64_t n,
                         std::int64_t c, std::int64_t h, std::int64_t v) {
  const Array4<const T> dy(grad_output), w(weight);
  const std::int64_t per_group = weight.shape[0] / g.groups, group = c / weight.shape[1];
  double sum = 0;
  for (std::int64_t kh = 0; kh < weight.shape[2]; ++kh) {
    const std::int64_t top = h + g.pad_h - kh * g.dilation_h;
    if (top < 0 || top % g.stride_h != 0 || top / g.stride_h >= grad_output.shape[2]) continue;
    for (std::int64_t kw = 0; kw < weight.shape[3]; ++kw) {
      const std::int64_t left = v + g.pad_w - kw * g.dilation_w;
      if (left < 0 || left % g.stride_w != 0 || left / g.stride_w >= grad_output.shape[3]) continue;
      for (std::int64_t o = group * per_group; o < (group + 1) * per_group; ++o) {
        sum += static_cast<double>(load(dy(n, o, top / g.stride_h, left / g.stride_w))) *
               static_cast<double>(load(w(o, c % weight.shape[1], kh, kw)));
      }
    }
  }
  return sum;
}

template <class T>
double weight_gradient_at(const Conv2dGeometry& g, const View& input, const View& grad_output, std::int64_t o,
                          std::int64_t channel, std::int64_t kh, std::int64_t kw) {
  const Array4<const T> x(input), dy(grad_output);
  const std::int64_t down = kh * g.dilation_h - g.pad_h, right = kw * g.dilation_w - g.pad_w;
  const Range rows = valid_outputs(grad_output.shape[2], g.stride_h, down, input.shape[2]);
  const Range columns = valid_outputs(grad_output.shape[3], g.stride_w, right, input.shape[3]);
  double sum = 0;
  for (std::int64_t n = 0; n < input.shape[0]; ++n) {
    for (std::int64_t oh = rows.begin; oh < rows.end; ++oh) {
      for (std::int64_t ow = columns.begin; ow < columns.end; ++ow) {
        sum += static_cast<double>(load(x(n, channel, oh * g.stride_h + down, ow * g.stride_w + right))) *
               static_cast<double>(load(dy(n, o, oh, ow)));
      }
    }
  }
  return sum;
}

template <class T>
void bias_gradient(const View& grad_output, const View& grad_bias) {
  const Array4<const T> dy(grad_output);
  for (std::int64_t o = 0; o < grad_output.shape[1]; ++o) {
    double sum = 0;
    for (std::int64_t n = 0; n < grad_output.shape[0]; ++n) {
      for (std::int64_t h = 0; h < grad_output.shape[2]; ++h) {
        for (std::int64_t v = 0; v < grad_output.shape[3]; ++v) sum += load(dy(n, o, h, v));
      }
    }
    grad_bias.as<T>()[o * grad_bias.strides[0]] = cast<T>(sum);
  }
}

/// Calls `f(i, j, k, l, element)` for every element of a rank-4 view.
template <class T, class F>
void for_each4(const View& view, F&& f) {
  const Array4<T> array(view);
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    for (std::int64_t j = 0; j < view.shape[1]; ++j) {
      for (std::int64_t k = 0; k < view.shape[2]; ++k) {
        for (std::int64_t l = 0; l < view.shape[3]; ++l) f(i, j, k, l, array(i, j, k, l));
      }
    }
  }
}

}  // namespace

void conv2d(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
            Activation activation, const View& output) {
  dispatch_floating("conv2d", output.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_each4<T>(output, [&](auto n, auto o, auto oh, auto ow, T& element) {
      double value = forward_at<T>(geometry, input, weight, n, o, oh, ow);
      if (bias.data != nullptr) value += load(bias.as<const T>()[o * bias.strides[0]]);
      if (activation == Activation::relu) value = value < 0 ? 0 : value;
      element = cast<T>(value);
    });
  });
}

void conv2d_backward_input(const Conv2dGeometry& geometry, const View& grad_output, const View& weight,
                           const View& grad_input) {
  dispatch_floating("conv2d_backward_input", grad_input.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_each4<T>(grad_input, [&](auto n, auto c, auto h, auto v, T& element) {
      element = cast<T>(input_gradient_at<T>(geometry, grad_output, weight, n, c, h, v));
    });
  });
}

void conv2d_backward_weight(const Conv2dGeometry& geometry, const View& input, const View& grad_output,
                            const View& grad_weight, const View& grad_bias) {
  dispatch_floating("conv2d_backward_weight", grad_weight.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t per_group = grad_weight.shape[0] / geometry.groups;
    for_each4<T>(grad_weight, [&](auto o, auto c, auto kh, auto kw, T& element) {
      const std::int64_t channel = o / per_group * grad_weight.shape[1] + c;
      element = cast<T>(weight_gradient_at<T>(geometry, input, grad_output, o, channel, kh, kw));
    });
    if (grad_bias.data != nullptr) bias_gradient<T>(grad_output, grad_bias);
  });
}

}  // namespace dtrain::cpu::naive
