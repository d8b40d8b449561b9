// What batch normalisation is made of, in one piece (norm.cu) and in steps (norm_parts.cu). Sums over a
// channel's pixels are accumulated in double, slice by slice, and the slices are added up in their order.
#pragma once

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/pool/windows.cuh"

namespace dtrain::cuda::norm {

constexpr int kColumns = 32, kRows = 8;

/// The type per-channel arrays have beside activations of T.
template <class T>
using Channel = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// An activation array as pixels (n, h, w) and channels. Null data where there is none.
template <class T>
struct Pixels {
  explicit Pixels(const View& view) : image(view), dense(view.data != nullptr && view.is_channels_last()) {}
  __device__ T& operator()(std::int64_t pixel, std::int64_t c) const {
    if (dense) return image.data[pixel * image.extent[1] + c];
    const std::int64_t w = pixel % image.extent[3], rest = pixel / image.extent[3];
    return image(rest / image.extent[2], c, rest % image.extent[2], w);
  }
  Image<T> image;
  bool dense;
};

/// The two sums of every slice and channel: sums[(slice · 2 + which) · channels + c].
template <class Terms>
__global__ void sums_kernel(std::int64_t pixels, std::int64_t channels, std::int64_t slices, Terms terms,
                            double* sums) {
  __shared__ double first[kRows][kColumns], second[kRows][kColumns];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::int64_t slice = blockIdx.y;
  double a = 0, b = 0;
  if (c < channels) {
    const std::int64_t end = pixels * (slice + 1) / slices;
    for (std::int64_t p = pixels * slice / slices + threadIdx.y; p < end; p += kRows) terms(p, c, a, b);
  }
  first[threadIdx.y][threadIdx.x] = a;
  second[threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y != 0 || c >= channels) return;
  for (int row = 1; row < kRows; ++row) {
    a += first[row][threadIdx.x];
    b += second[row][threadIdx.x];
  }
  sums[slice * 2 * channels + c] = a;
  sums[(slice * 2 + 1) * channels + c] = b;
}

__device__ inline void add_slices(const double* sums, std::int64_t slices, std::int64_t channels,
                                  std::int64_t c, double& a, double& b) {
  a = b = 0;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    a += sums[slice * 2 * channels + c];
    b += sums[(slice * 2 + 1) * channels + c];
  }
}

template <class T>
struct Moments {
  Pixels<const T> input;
  __device__ void operator()(std::int64_t p, std::int64_t c, double& a, double& b) const {
    const double x = static_cast<double>(load(input(p, c))) - static_cast<double>(load(input(0, c)));
    a += x;
    b += x * x;
  }
};

/// A per-channel array of any stride; null data where there is none.
template <class C>
struct PerChannel {
  explicit PerChannel(const View& view)
      : data(static_cast<C*>(view.data)), step(view.data == nullptr ? 0 : view.strides[0]) {}
  __device__ C& operator[](std::int64_t c) const { return data[c * step]; }
  __device__ explicit operator bool() const { return data != nullptr; }
  C* data;
  std::int64_t step;
};

/// The gradient that comes through the activation, also written for the residual where there is one.
template <class T>
struct GradientSums {
  Pixels<const T> grad, gate, input;
  Pixels<T> residual;
  PerChannel<const Channel<T>> mean;
  __device__ void operator()(std::int64_t p, std::int64_t c, double& a, double& b) const {
    const bool closed = gate.image.data != nullptr && load(gate(p, c)) <= Compute<T>(0);
    const T through = closed ? cast<T>(Compute<T>(0)) : grad(p, c);
    if (residual.image.data != nullptr) residual(p, c) = through;
    const auto dy = static_cast<double>(load(through));
    a += dy;
    b += dy * (static_cast<double>(load(input(p, c))) - static_cast<double>(mean[c]));
  }
};

/// The per-channel arrays as a kernel takes them.
template <class C>
struct ChannelArrays {
  explicit ChannelArrays(const BatchNormChannels& from)
      : weight(from.weight),
        bias(from.bias),
        running_mean(from.running_mean),
        running_var(from.running_var),
        mean(from.mean),
        inv_std(from.inv_std) {}
  /// From the mean and biased variance of `count` values; moves the running statistics where there are any.
  __device__ void set_statistics(std::int64_t c, const BatchNormRule& rule, double count, double batch_mean,
                                 double variance) const {
    mean[c] = static_cast<C>(batch_mean);
    inv_std[c] = static_cast<C>(1.0 / sqrt(variance + rule.eps));
    if (running_mean) move(running_mean[c], rule.momentum, batch_mean);
    if (running_var) move(running_var[c], rule.momentum, variance * count / (count - 1));
  }
  /// The affine map (scale, shift) that apply_kernel takes.
  __device__ void set_map(std::int64_t c, std::int64_t channels, C of_mean, C of_inv_std, C* map) const {
    map[c] = of_inv_std * weight_or_one(c);
    map[channels + c] = (bias ? bias[c] : C(0)) - of_mean * map[c];
  }
  /// What input_gradient_kernel takes (mean of the gradient, slope, scale), from the two sums of GradientSums
  /// over `count` values.
  __device__ void set_gradient_map(std::int64_t c, std::int64_t channels, double count, double sum,
                                   double products, C* map) const {
    const double scale = static_cast<double>(inv_std[c]);
    map[c] = static_cast<C>(sum / count);
    map[channels + c] = static_cast<C>(scale * scale * products / count);
    map[2 * channels + c] = inv_std[c] * weight_or_one(c);
  }
  /// Gradients of weight and bias, from the same sums; either may be null.
  __device__ void set_gradients(std::int64_t c, double sum, double products, PerChannel<C> grad_weight,
                                PerChannel<C> grad_bias) const {
    if (grad_weight) grad_weight[c] = static_cast<C>(products * static_cast<double>(inv_std[c]));
    if (grad_bias) grad_bias[c] = static_cast<C>(sum);
  }

  PerChannel<const C> weight, bias;
  PerChannel<C> running_mean, running_var, mean, inv_std;

 private:
  __device__ C weight_or_one(std::int64_t c) const { return weight ? weight[c] : C(1); }
  __device__ static void move(C& running, double momentum, double now) {
    running = static_cast<C>((1 - momentum) * static_cast<double>(running) + momentum * now);
  }
};

template <class T>
__global__ void apply_kernel(std::int64_t count, std::int64_t channels, bool relu, Pixels<const T> input,
                             const Channel<T>* map, Pixels<const T> residual, Pixels<T> output) {
  using C = Channel<T>;
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const std::int64_t p = i / channels, c = i - p * channels;
    C y = static_cast<C>(load(input(p, c))) * map[c] + map[channels + c];
    if (residual.image.data != nullptr) y += static_cast<C>(load(residual(p, c)));
    output(p, c) = cast<T>(relu && y < C(0) ? C(0) : y);
  }
}

template <class T>
__global__ void input_gradient_kernel(std::int64_t count, std::int64_t channels, Pixels<const T> grad,
                                      Pixels<const T> gate, Pixels<const T> input,
                                      PerChannel<const Channel<T>> mean, const Channel<T>* map,
                                      Pixels<T> to) {
  using C = Channel<T>;
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const std::int64_t p = i / channels, c = i - p * channels;
    const bool closed = gate.image.data != nullptr && load(gate(p, c)) <= Compute<T>(0);
    const C dy = closed ? C(0) : static_cast<C>(load(grad(p, c)));
    const C x = static_cast<C>(load(input(p, c))) - mean[c];
    to(p, c) = cast<T>((dy - map[c] - x * map[channels + c]) * map[2 * channels + c]);
  }
}

/// How a pass over an activation is cut.
struct Cut {
  Cut(const Context& context, const View& input)
      : channels(input.shape[1]), pixels(input.numel() / input.shape[1]) {
    groups = (channels + kColumns - 1) / kColumns;
    const std::int64_t wanted = 4 * static_cast<std::int64_t>(context.multiprocessors) / groups;
    slices = std::clamp<std::int64_t>(wanted, 1, std::min<std::int64_t>(pixels / 64 + 1, 65535));
  }
  std::size_t sum_bytes() const { return static_cast<std::size_t>(slices * 2 * channels) * sizeof(double); }
  dim3 grid() const { return dim3(static_cast<unsigned>(groups), static_cast<unsigned>(slices)); }
  std::int64_t channels, pixels, groups, slices;
};

/// Sums `terms` over the pixels of each slice and channel.
template <class Terms>
void sum_slices(const Context& context, std::string_view operation, const Cut& cut, const Terms& terms,
                double* sums) {
  DTRAIN_LAUNCH(operation, context.stream, cut.grid(), dim3(kColumns, kRows), sums_kernel, cut.pixels,
                cut.channels, cut.slices, terms, sums);
}

template <class T>
void apply(const Context& context, const BatchNormRule& rule, const View& input, const Channel<T>* map,
           const View& residual, const View& output) {
  DTRAIN_LAUNCH("batch_norm", context.stream, blocks_for(context, input.numel()), kThreads, apply_kernel<T>,
                input.numel(), input.shape[1], rule.activation == Activation::relu, Pixels<const T>(input),
                map, Pixels<const T>(residual), Pixels<T>(output));
}

}  // namespace dtrain::cuda::norm
