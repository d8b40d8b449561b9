// The per-channel arrays of batch normalisation, what follows from a channel's sums, and the activation's
// gate.
#pragma once

#include "runtime/device/cuda/norm/pixels.cuh"

namespace dtrain::cuda::norm {

/// A per-channel array of any stride; null data where there is none.
template <class C>
struct PerChannel {
  explicit PerChannel(const View& view)
      : data(static_cast<C*>(view.data)), step(view.data == nullptr ? 0 : view.strides[0]) {}
  __device__ C& operator[](std::int64_t c) const { return data[c * step]; }
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
  C* data;
  std::int64_t step;
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
  /// What the channel's values are multiplied with and what is added.
  __device__ void affine(std::int64_t c, C of_mean, C of_inv_std, C& scale, C& shift) const {
    scale = of_inv_std * (weight ? weight[c] : C(1));
    shift = scale_and_shift(-of_mean, scale, bias ? bias[c] : C(0));
  }
  /// The affine map as apply_kernel takes it.
  __device__ void set_map(std::int64_t c, std::int64_t channels, C of_mean, C of_inv_std, C* map) const {
    affine(c, of_mean, of_inv_std, map[c], map[channels + c]);
  }
  /// What input_gradient_kernel takes, kGradientMap arrays of all channels: mean of the gradient, slope,
  /// forward's affine map; from the two sums of GradientSums over `count` values.
  __device__ void set_gradient_map(std::int64_t c, std::int64_t channels, double count, double sum,
                                   double products, C* map) const {
    const double scale = static_cast<double>(inv_std[c]);
    map[c] = static_cast<C>(sum / count);
    map[channels + c] = static_cast<C>(scale * scale * products / count);
    affine(c, mean[c], inv_std[c], map[2 * channels + c], map[3 * channels + c]);
    map[4 * channels + c] = mean[c];
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
  __device__ static void move(C& running, double momentum, double now) {
    running = static_cast<C>((1 - momentum) * static_cast<double>(running) + momentum * now);
  }
};
constexpr int kGradientMap = 5;

/// Which of a gradient's elements the activation lets through, told by what forward wrote; or, where nothing
/// was added to a channel's affine map, by that map, which saves reading the output.
template <class T, int V>
struct Gate {
  using C = Channel<T>;
  using Index = typename Pixels<const T, V>::Index;
  /// Null `written`: there is no activation.
  Gate(const View& written, const View& bias)
      : output(bias.data == nullptr ? written : View{}),
        by_map(written.data != nullptr && bias.data != nullptr) {}

  /// What forward wrote, as far as it is needed to tell.
  __device__ Pack<T, V> load_written(Index p, Index c) const {
    return output ? output.load(p, c) : Pack<T, V>{};
  }
  __device__ Pack<T, V> pass(const Pack<T, V>& grad, const Pack<T, V>& x, Pack<T, V> y, const C (&scale)[V],
                             const C (&shift)[V]) const {
    if (!by_map && !output) return grad;
    Pack<T, V> result;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (by_map) y.at[v] = cast<T>(scale_and_shift(static_cast<C>(load(x.at[v])), scale[v], shift[v]));
      const bool closed = load(y.at[v]) <= Compute<T>(0);
      result.at[v] = closed ? cast<T>(Compute<T>(0)) : grad.at[v];
    }
    return result;
  }

  Pixels<const T, V> output;
  bool by_map;
};

}  // namespace dtrain::cuda::norm
