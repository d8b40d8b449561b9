// Batch normalisation. Sums over a channel's pixels are accumulated in double, slice by slice, and the slices
// are added up in their order; the variance is taken around the channel's first pixel, so that one pass over
// memory is enough.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/windows.cuh"

namespace dtrain::cuda {
namespace {

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

/// The gradient that comes through the activation, also written for the residual where there is one.
template <class T>
struct GradientSums {
  Pixels<const T> grad, gate, input;
  Pixels<T> residual;
  const Channel<T>* mean;
  __device__ void operator()(std::int64_t p, std::int64_t c, double& a, double& b) const {
    const bool open = gate.image.data == nullptr || load(gate(p, c)) > Compute<T>(0);
    const T through = open ? grad(p, c) : cast<T>(Compute<T>(0));
    if (residual.image.data != nullptr) residual(p, c) = through;
    const auto dy = static_cast<double>(load(through));
    a += dy;
    b += dy * (static_cast<double>(load(input(p, c))) - static_cast<double>(mean[c]));
  }
};

/// The per-channel arrays as pointers.
template <class C>
struct ChannelArrays {
  explicit ChannelArrays(const BatchNormChannels& from)
      : weight(from.weight.as<const C>()),
        bias(from.bias.as<const C>()),
        running_mean(from.running_mean.as<C>()),
        running_var(from.running_var.as<C>()),
        mean(from.mean.as<C>()),
        inv_std(from.inv_std.as<C>()) {}
  __device__ C weight_of(std::int64_t c) const { return weight == nullptr ? C(1) : weight[c]; }
  __device__ C bias_of(std::int64_t c) const { return bias == nullptr ? C(0) : bias[c]; }
  const C* weight;
  const C* bias;
  C *running_mean, *running_var, *mean, *inv_std;
};

/// Statistics, running statistics, and the affine map (scale, shift) each channel goes through.
template <class T>
__global__ void statistics_kernel(std::int64_t pixels, std::int64_t channels, std::int64_t slices,
                                  BatchNormRule rule, Pixels<const T> input, const double* sums,
                                  ChannelArrays<Channel<T>> at, Channel<T>* map) {
  using C = Channel<T>;
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    double a, b;
    add_slices(sums, slices, channels, c, a, b);
    const double count = static_cast<double>(pixels), offset = a / count;
    const double variance = max(b / count - offset * offset, 0.0);
    const double mean = static_cast<double>(load(input(0, c))) + offset;
    at.mean[c] = static_cast<C>(mean);
    at.inv_std[c] = static_cast<C>(1.0 / sqrt(variance + rule.eps));
    const double keep = 1 - rule.momentum;
    if (at.running_mean != nullptr)
      at.running_mean[c] =
          static_cast<C>(keep * static_cast<double>(at.running_mean[c]) + rule.momentum * mean);
    if (at.running_var != nullptr)
      at.running_var[c] = static_cast<C>(keep * static_cast<double>(at.running_var[c]) +
                                         rule.momentum * variance * count / (count - 1));
    map[c] = at.inv_std[c] * at.weight_of(c);
    map[channels + c] = at.bias_of(c) - at.mean[c] * map[c];
  }
}

template <class C>
__global__ void running_map_kernel(std::int64_t channels, BatchNormRule rule, ChannelArrays<C> at, C* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    const C inv_std = static_cast<C>(1.0 / sqrt(static_cast<double>(at.running_var[c]) + rule.eps));
    map[c] = inv_std * at.weight_of(c);
    map[channels + c] = at.bias_of(c) - at.running_mean[c] * map[c];
  }
}

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

/// Gradients of weight and bias; map: mean of the gradient, slope, scale.
template <class T>
__global__ void gradient_map_kernel(std::int64_t pixels, std::int64_t channels, std::int64_t slices,
                                    const double* sums, ChannelArrays<Channel<T>> at, Channel<T>* grad_weight,
                                    Channel<T>* grad_bias, Channel<T>* map) {
  using C = Channel<T>;
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    double a, b;
    add_slices(sums, slices, channels, c, a, b);
    const double count = static_cast<double>(pixels), inv_std = static_cast<double>(at.inv_std[c]);
    if (grad_weight != nullptr) grad_weight[c] = static_cast<C>(b * inv_std);
    if (grad_bias != nullptr) grad_bias[c] = static_cast<C>(a);
    map[c] = static_cast<C>(a / count);
    map[channels + c] = static_cast<C>(inv_std * inv_std * b / count);
    map[2 * channels + c] = at.inv_std[c] * at.weight_of(c);
  }
}

template <class T>
__global__ void input_gradient_kernel(std::int64_t count, std::int64_t channels, Pixels<const T> grad,
                                      Pixels<const T> gate, Pixels<const T> input, const Channel<T>* mean,
                                      const Channel<T>* map, Pixels<T> to) {
  using C = Channel<T>;
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const std::int64_t p = i / channels, c = i - p * channels;
    const bool open = gate.image.data == nullptr || load(gate(p, c)) > Compute<T>(0);
    const C dy = open ? static_cast<C>(load(grad(p, c))) : C(0);
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

void require_channels(std::string_view operation, const BatchNormChannels& channels, const View& input) {
  require_rank(operation, "input", input, 4);
  const DType dtype = input.dtype == DType::f64 ? DType::f64 : DType::f32;
  for (const View* view : {&channels.weight, &channels.bias, &channels.running_mean, &channels.running_var,
                           &channels.mean, &channels.inv_std})
    require_vector(operation, "a channel array", *view, input.shape[1], dtype);
}

void require_several(std::string_view operation, const View& input) {
  if (input.shape[1] == 0 || input.numel() / input.shape[1] > 1) return;
  refuse(operation, "expected more than one value per channel to normalise, got input shape " +
                        input.shape.to_string() + "; use a larger batch or evaluation mode");
}

void require_optional(std::string_view operation, std::string_view argument, const View& view,
                      const View& like) {
  if (view.data != nullptr) require_like(operation, argument, view, like);
}

template <class T>
void apply(const Context& context, const BatchNormRule& rule, const View& input, const Channel<T>* map,
           const View& residual, const View& output) {
  apply_kernel<T><<<blocks_for(context, input.numel()), kThreads, 0, context.stream>>>(
      input.numel(), input.shape[1], rule.activation == Activation::relu, Pixels<const T>(input), map,
      Pixels<const T>(residual), Pixels<T>(output));
  check_launch("batch_norm");
}

}  // namespace

void CudaKernels::batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                             const View& residual, const View& output) {
  require_channels("batch_norm", channels, input);
  require_several("batch_norm", input);
  require_optional("batch_norm", "residual", residual, input);
  require_like("batch_norm", "output", output, input);
  if (input.numel() == 0) return;
  const Cut cut(context_, input);
  const Scratch sums(context_.memory, cut.sum_bytes());
  const Scratch map(context_.memory, static_cast<std::size_t>(cut.channels) * 2 * sizeof(double));
  auto* const at_sums = static_cast<double*>(sums.data());
  dispatch_floating("batch_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    auto* const at_map = static_cast<Channel<T>*>(map.data());
    const Pixels<const T> in(input);
    sums_kernel<<<cut.grid(), dim3(kColumns, kRows), 0, context_.stream>>>(
        cut.pixels, cut.channels, cut.slices, Moments<T>{in}, at_sums);
    check_launch("batch_norm");
    statistics_kernel<T><<<blocks_for(context_, cut.channels), kThreads, 0, context_.stream>>>(
        cut.pixels, cut.channels, cut.slices, rule, in, at_sums, ChannelArrays<Channel<T>>(channels), at_map);
    check_launch("batch_norm");
    apply<T>(context_, rule, input, at_map, residual, output);
  });
}

void CudaKernels::batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels,
                                       const View& input, const View& residual, const View& output) {
  require_channels("batch_norm_inference", channels, input);
  require_optional("batch_norm_inference", "residual", residual, input);
  require_like("batch_norm_inference", "output", output, input);
  if (input.numel() == 0) return;
  const std::int64_t extent = input.shape[1];
  const Scratch map(context_.memory, static_cast<std::size_t>(extent) * 2 * sizeof(double));
  dispatch_floating("batch_norm_inference", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    auto* const at_map = static_cast<Channel<T>*>(map.data());
    running_map_kernel<Channel<T>><<<blocks_for(context_, extent), kThreads, 0, context_.stream>>>(
        extent, rule, ChannelArrays<Channel<T>>(channels), at_map);
    check_launch("batch_norm_inference");
    apply<T>(context_, rule, input, at_map, residual, output);
  });
}

void CudaKernels::batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels,
                                      const View& input, const View& output, const View& grad_output,
                                      const View& grad_input, const View& grad_residual,
                                      const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "batch_norm_backward";
  require_channels(kName, channels, input);
  require_several(kName, input);
  require_like(kName, "grad_output", grad_output, input);
  require_like(kName, "grad_input", grad_input, input);
  require_optional(kName, "grad_residual", grad_residual, input);
  const bool gated = rule.activation == Activation::relu;
  if (gated) require_like(kName, "output", output, input);
  if (input.numel() == 0) return;
  const View gate = gated ? output : View{};
  const Cut cut(context_, input);
  const Scratch sums(context_.memory, cut.sum_bytes());
  const Scratch map(context_.memory, static_cast<std::size_t>(cut.channels) * 3 * sizeof(double));
  auto* const at_sums = static_cast<double*>(sums.data());
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Channel<T>;
    auto* const at_map = static_cast<C*>(map.data());
    const ChannelArrays<C> at(channels);
    const Pixels<const T> in(input), grad(grad_output), open(gate);
    sums_kernel<<<cut.grid(), dim3(kColumns, kRows), 0, context_.stream>>>(
        cut.pixels, cut.channels, cut.slices,
        GradientSums<T>{grad, open, in, Pixels<T>(grad_residual), at.mean}, at_sums);
    check_launch(kName);
    gradient_map_kernel<T><<<blocks_for(context_, cut.channels), kThreads, 0, context_.stream>>>(
        cut.pixels, cut.channels, cut.slices, at_sums, at, grad_weight.as<C>(), grad_bias.as<C>(), at_map);
    check_launch(kName);
    input_gradient_kernel<T><<<blocks_for(context_, input.numel()), kThreads, 0, context_.stream>>>(
        input.numel(), cut.channels, grad, open, in, at.mean, at_map, Pixels<T>(grad_input));
    check_launch(kName);
  });
}

}  // namespace dtrain::cuda
