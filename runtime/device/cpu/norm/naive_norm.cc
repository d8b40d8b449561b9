// Batch normalisation channel by channel over any strides, in double: two passes for the statistics.
#include <cmath>

#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"

namespace dtrain::cpu::naive {
namespace {

double read(const View& vector, std::int64_t channel, double otherwise) {
  if (vector.data == nullptr) return otherwise;
  const std::int64_t at = channel * vector.strides[0];
  return vector.dtype == DType::f64 ? vector.as<const double>()[at]
                                    : static_cast<double>(vector.as<const float>()[at]);
}

void write(const View& vector, std::int64_t channel, double value) {
  if (vector.data == nullptr) return;
  const std::int64_t at = channel * vector.strides[0];
  if (vector.dtype == DType::f64) {
    vector.as<double>()[at] = value;
  } else {
    vector.as<float>()[at] = static_cast<float>(value);
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

/// The gradient at `at`, unless the activation wrote 0 at `at_gate`. No gate: always.
template <class T>
double gated(const View& grad, std::int64_t at, const View& gate, std::int64_t at_gate) {
  const bool closed = gate.data != nullptr && load(gate.as<const T>()[at_gate]) <= 0;
  return closed ? 0.0 : static_cast<double>(load(grad.as<const T>()[at]));
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
void moments(const View& input, const View& result) {
  const std::int64_t channels = input.shape[1];
  const double count = static_cast<double>(input.numel() / channels);
  double* const out = result.as<double>();
  out[0] = count;
  for (std::int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    const auto x = [&](std::int64_t at) { return static_cast<double>(load(input.as<const T>()[at])); };
    pixels(input, c, {}, {}, [&](std::int64_t at, std::int64_t, std::int64_t) { sum += x(at); });
    const double mean = count == 0 ? 0 : sum / count;
    pixels(input, c, {}, {},
           [&](std::int64_t at, std::int64_t, std::int64_t) { squares += (x(at) - mean) * (x(at) - mean); });
    out[1 + c] = mean;
    out[1 + channels + c] = squares;
  }
}

template <class T>
void grad_sums(const BatchNormChannels& channels, const View& input, const View& gate,
               const View& grad_output, const View& grad_residual, const View& sums) {
  const std::int64_t extent = input.shape[1];
  double* const out = sums.as<double>();
  out[0] = static_cast<double>(input.numel() / extent);
  for (std::int64_t c = 0; c < extent; ++c) {
    const double mean = read(channels.mean, c, 0);
    const auto x = [&](std::int64_t at) { return static_cast<double>(load(input.as<const T>()[at])); };
    double sum = 0, products = 0;
    pixels(input, c, grad_output, gate, [&](std::int64_t i, std::int64_t g, std::int64_t o) {
      const double dy = gated<T>(grad_output, g, gate, o);
      sum += dy;
      products += dy * (x(i) - mean);
    });
    out[1 + c] = sum;
    out[1 + extent + c] = products;
    if (grad_residual.data == nullptr) continue;
    pixels(grad_output, c, gate, grad_residual, [&](std::int64_t g, std::int64_t o, std::int64_t to) {
      grad_residual.as<T>()[to] = cast<T>(gated<T>(grad_output, g, gate, o));
    });
  }
}

template <class T>
void grad_input_of(const BatchNormChannels& channels, const View& sums, const View& input, const View& gate,
                   const View& grad_output, const View& grad_input) {
  const std::int64_t extent = input.shape[1];
  const double* const in = sums.as<const double>();
  for (std::int64_t c = 0; c < extent; ++c) {
    const double mean = read(channels.mean, c, 0), inv_std = read(channels.inv_std, c, 1);
    const double scale = inv_std * read(channels.weight, c, 1), grad_mean = in[1 + c] / in[0];
    const double slope = inv_std * inv_std * in[1 + extent + c] / in[0];
    // The gradient holds its first part until the second walk completes it: a walk takes three arrays.
    pixels(grad_output, c, gate, grad_input, [&](std::int64_t g, std::int64_t o, std::int64_t to) {
      grad_input.as<T>()[to] = cast<T>((gated<T>(grad_output, g, gate, o) - grad_mean) * scale);
    });
    pixels(input, c, grad_input, {}, [&](std::int64_t i, std::int64_t to, std::int64_t) {
      const double rest = static_cast<double>(load(grad_input.as<const T>()[to]));
      const double x = static_cast<double>(load(input.as<const T>()[i]));
      grad_input.as<T>()[to] = cast<T>(rest - (x - mean) * slope * scale);
    });
  }
}

/// One channel's moments: how many values, their mean, the sum of squared differences from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  void add(const Moments& other) {
    if (other.count == 0) return;
    const double together = count + other.count, apart = other.mean - mean;
    mean += apart * other.count / together;
    squares += other.squares + apart * apart * count * other.count / together;
    count = together;
  }
};

}  // namespace

void batch_norm_moments(const View& input, const View& result) {
  dispatch_floating("batch_norm_moments", input.dtype,
                    [&](auto tag) { moments<decltype(tag)>(input, result); });
}

void batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels, const View& parts) {
  const std::int64_t length = parts.shape[1], extent = (length - 1) / 2;
  const double keep = 1 - rule.momentum;
  for (std::int64_t c = 0; c < extent; ++c) {
    Moments all;
    for (std::int64_t part = 0; part < parts.shape[0]; ++part) {
      const double* const from = parts.as<const double>() + part * length;
      all.add({from[0], from[1 + c], from[1 + extent + c]});
    }
    const double variance = all.squares / all.count, unbiased = all.squares / (all.count - 1);
    write(channels.mean, c, all.mean);
    write(channels.inv_std, c, 1 / std::sqrt(variance + rule.eps));
    write(channels.running_mean, c, keep * read(channels.running_mean, c, 0) + rule.momentum * all.mean);
    write(channels.running_var, c, keep * read(channels.running_var, c, 0) + rule.momentum * unbiased);
  }
}

void batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                      const View& residual, const View& output) {
  dispatch_floating("batch_norm_apply", input.dtype, [&](auto tag) {
    for (std::int64_t c = 0; c < input.shape[1]; ++c) {
      apply<decltype(tag)>(rule, channels, c, read(channels.mean, c, 0), read(channels.inv_std, c, 1), input,
                           residual, output);
    }
  });
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

void batch_norm_grad_sums(const BatchNormChannels& channels, const View& input, const View& output,
                          const View& grad_output, const View& grad_residual, const View& sums) {
  dispatch_floating("batch_norm_grad_sums", input.dtype, [&](auto tag) {
    grad_sums<decltype(tag)>(channels, input, output, grad_output, grad_residual, sums);
  });
}

void batch_norm_channel_grads(const BatchNormChannels& channels, const View& sums, const View& grad_weight,
                              const View& grad_bias) {
  const double* const in = sums.as<const double>();
  const std::int64_t extent = channels.mean.numel();
  for (std::int64_t c = 0; c < extent; ++c) {
    write(grad_bias, c, in[1 + c]);
    write(grad_weight, c, in[1 + extent + c] * read(channels.inv_std, c, 1));
  }
}

void batch_norm_grad_input(const BatchNormChannels& channels, const View& sums, const View& input,
                           const View& output, const View& grad_output, const View& grad_input) {
  dispatch_floating("batch_norm_grad_input", input.dtype, [&](auto tag) {
    grad_input_of<decltype(tag)>(channels, sums, input, output, grad_output, grad_input);
  });
}

}  // namespace dtrain::cpu::naive
