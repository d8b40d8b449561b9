// Batch normalisation channel by channel over any strides, in double: two passes for the statistics.
#include <cmath>

#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"

namespace dtrain::cpu::naive {
namespace {

double read(const View& vector, std::int64_t channel, double otherwise) {
  if (vector.data == nullptr) return otherwise;
  return vector.dtype == DType::f64 ? vector.as<const double>()[channel]
                                    : static_cast<double>(vector.as<const float>()[channel]);
}

void write(const View& vector, std::int64_t channel, double value) {
  if (vector.data == nullptr) return;
  if (vector.dtype == DType::f64) {
    vector.as<double>()[channel] = value;
  } else {
    vector.as<float>()[channel] = static_cast<float>(value);
  }
}

/// Calls f(offset of the pixel in `a`, in `b`, in `c`) for every pixel of a channel; absent views have 0.
template <class F>
void pixels(const View& shape, std::int64_t channel, const View& b, const View& c, F&& f) {
  const auto offset = [&](const View& view, std::int64_t n, std::int64_t h, std::int64_t w) {
    if (view.data == nullptr) return std::int64_t{0};
    return n * view.strides[0] + channel * view.strides[1] + h * view.strides[2] + w * view.strides[3];
  };
  for (std::int64_t n = 0; n < shape.shape[0]; ++n)
    for (std::int64_t h = 0; h < shape.shape[2]; ++h)
      for (std::int64_t w = 0; w < shape.shape[3]; ++w)
        f(offset(shape, n, h, w), offset(b, n, h, w), offset(c, n, h, w));
}

template <class T>
void apply(const BatchNormRule& rule, const BatchNormChannels& channels, std::int64_t channel, double mean,
           double inv_std, const View& input, const View& residual, const View& output) {
  const double scale = inv_std * read(channels.weight, channel, 1), bias = read(channels.bias, channel, 0);
  pixels(input, channel, residual, output, [&](std::int64_t at, std::int64_t from, std::int64_t to) {
    double y = (static_cast<double>(load(input.as<const T>()[at])) - mean) * scale + bias;
    if (residual.data != nullptr) y += static_cast<double>(load(residual.as<const T>()[from]));
    if (rule.activation == Activation::relu) y = y < 0 ? 0 : y;
    output.as<T>()[to] = cast<T>(y);
  });
}

template <class T>
void forward(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
             const View& residual, const View& output) {
  const double count = static_cast<double>(input.numel() / input.shape[1]), m = rule.momentum;
  for (std::int64_t c = 0; c < input.shape[1]; ++c) {
    double sum = 0, squares = 0;
    const auto x = [&](std::int64_t at) { return static_cast<double>(load(input.as<const T>()[at])); };
    pixels(input, c, {}, {}, [&](std::int64_t at, std::int64_t, std::int64_t) { sum += x(at); });
    const double mean = sum / count;
    pixels(input, c, {}, {},
           [&](std::int64_t at, std::int64_t, std::int64_t) { squares += (x(at) - mean) * (x(at) - mean); });
    const double inv_std = 1 / std::sqrt(squares / count + rule.eps);
    write(channels.mean, c, mean);
    write(channels.inv_std, c, inv_std);
    write(channels.running_mean, c, (1 - m) * read(channels.running_mean, c, 0) + m * mean);
    write(channels.running_var, c, (1 - m) * read(channels.running_var, c, 0) + m * squares / (count - 1));
    apply<T>(rule, channels, c, mean, inv_std, input, residual, output);
  }
}

template <class T>
void backward(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
              const View& output, const View& grad_output, const View& grad_input, const View& grad_residual,
              const View& grad_weight, const View& grad_bias) {
  const double count = static_cast<double>(input.numel() / input.shape[1]);
  const View gate = rule.activation == Activation::relu ? output : View{};
  for (std::int64_t c = 0; c < input.shape[1]; ++c) {
    const double mean = read(channels.mean, c, 0), inv_std = read(channels.inv_std, c, 1);
    const auto x = [&](std::int64_t at) { return static_cast<double>(load(input.as<const T>()[at])); };
    const auto dy = [&](std::int64_t at, std::int64_t at_gate) {
      const bool open = gate.data == nullptr || load(gate.as<const T>()[at_gate]) > 0;
      return open ? static_cast<double>(load(grad_output.as<const T>()[at])) : 0.0;
    };
    double sum = 0, products = 0;
    pixels(input, c, grad_output, gate, [&](std::int64_t i, std::int64_t g, std::int64_t o) {
      sum += dy(g, o);
      products += dy(g, o) * (x(i) - mean);
    });
    write(grad_weight, c, products * inv_std);
    write(grad_bias, c, sum);
    if (grad_residual.data != nullptr) {
      pixels(grad_output, c, gate, grad_residual, [&](std::int64_t g, std::int64_t o, std::int64_t to) {
        grad_residual.as<T>()[to] = cast<T>(dy(g, o));
      });
    }
    const double scale = inv_std * read(channels.weight, c, 1);
    const double slope = inv_std * inv_std * products / count;
    // The gradient holds its first part until the second walk completes it: a walk takes three arrays.
    pixels(grad_output, c, gate, grad_input, [&](std::int64_t g, std::int64_t o, std::int64_t to) {
      grad_input.as<T>()[to] = cast<T>((dy(g, o) - sum / count) * scale);
    });
    pixels(input, c, grad_input, {}, [&](std::int64_t i, std::int64_t to, std::int64_t) {
      const double rest = static_cast<double>(load(grad_input.as<const T>()[to]));
      grad_input.as<T>()[to] = cast<T>(rest - (x(i) - mean) * slope * scale);
    });
  }
}

}  // namespace

void batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                const View& residual, const View& output) {
  dispatch_floating("batch_norm", input.dtype,
                    [&](auto tag) { forward<decltype(tag)>(rule, channels, input, residual, output); });
}

void batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                          const View& residual, const View& output) {
  dispatch_floating("batch_norm_inference", input.dtype, [&](auto tag) {
    for (std::int64_t c = 0; c < input.shape[1]; ++c) {
      const double inv_std = 1 / std::sqrt(read(channels.running_var, c, 1) + rule.eps);
      apply<decltype(tag)>(rule, channels, c, read(channels.running_mean, c, 0), inv_std, input, residual,
                           output);
    }
  });
}

void batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                         const View& output, const View& grad_output, const View& grad_input,
                         const View& grad_residual, const View& grad_weight, const View& grad_bias) {
  dispatch_floating("batch_norm_backward", input.dtype, [&](auto tag) {
    backward<decltype(tag)>(rule, channels, input, output, grad_output, grad_input, grad_residual,
                            grad_weight, grad_bias);
  });
}

}  // namespace dtrain::cpu::naive
