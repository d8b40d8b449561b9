// Batch normalisation in steps, between which the parts of a batch exchange what they have.
#include "runtime/device/cuda/norm/apply.cuh"
#include "runtime/device/cuda/norm/sums.cuh"

namespace dtrain::cuda {

using namespace norm;

namespace {

/// What parts of a batch exchange: the values a channel has, then two numbers of each channel.
struct SetTotals {
  __device__ void operator()(std::int64_t c, double count, double first, double second) const {
    if (c == 0) totals[0] = count;
    totals[1 + c] = first;
    totals[1 + channels + c] = second;
  }
  std::int64_t channels;
  double* totals;
};

/// That, and this part's gradients of weight and bias.
template <class C>
struct SetTotalsAndGradients {
  __device__ void operator()(std::int64_t c, double count, double sum, double products) const {
    set_totals(c, count, sum, products);
    at.set_gradients(c, sum, products, grad_weight, grad_bias);
  }
  SetTotals set_totals;
  ChannelArrays<C> at;
  PerChannel<C> grad_weight, grad_bias;
};

/// Moments of several parts to statistics, part by part in their order.
template <class C>
__global__ void combine_kernel(std::int64_t parts, std::int64_t channels, BatchNormRule rule,
                               const double* moments, ChannelArrays<C> at) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    double count = 0, mean = 0, squares = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const double* const from = moments + part * (2 * channels + 1);
      if (from[0] == 0) continue;
      const double together = count + from[0], apart = from[1 + c] - mean;
      mean += apart * from[0] / together;
      squares += from[1 + channels + c] + apart * apart * count * from[0] / together;
      count = together;
    }
    at.set_statistics(c, rule, count, mean, squares / count);
  }
}

/// The affine map of each channel by its mean and inv_std.
template <class C>
__global__ void batch_map_kernel(std::int64_t channels, ChannelArrays<C> at, C* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    at.set_map(c, channels, at.mean[c], at.inv_std[c], map);
  }
}

/// What input_gradient_kernel takes, from the sums of all parts.
template <class C>
__global__ void totals_map_kernel(std::int64_t channels, const double* totals, ChannelArrays<C> at, C* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    at.set_gradient_map(c, channels, totals[0], totals[1 + c], totals[1 + channels + c], map);
  }
}

}  // namespace

void CudaKernels::batch_norm_moments(const View& input, const View& moments) {
  constexpr std::string_view kName = "batch_norm_moments";
  if (input.numel() == 0) return fill(moments, 0);
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    dispatch_width<T>(can_go_wide<T>(input), [&](auto width) {
      constexpr int V = decltype(width)::value;
      sum_up<V>(context_, kName, input, Moments<T, V>{Pixels<const T, V>(input)},
                SetTotals{input.shape[1], moments.as<double>()});
    });
  });
}

void CudaKernels::batch_norm_combine(const BatchNormRule& rule, const BatchNormChannels& channels,
                                     const View& parts) {
  constexpr std::string_view kName = "batch_norm_combine";
  const std::int64_t extent = channels.mean.numel();
  if (extent == 0) return;
  const auto combine = [&](auto tag) {
    using C = decltype(tag);
    DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, extent), kThreads, combine_kernel<C>,
                  parts.shape[0], extent, rule, parts.as<const double>(), ChannelArrays<C>(channels));
  };
  channels.mean.dtype == DType::f64 ? combine(double()) : combine(float());
}

void CudaKernels::batch_norm_apply(const BatchNormRule& rule, const BatchNormChannels& channels,
                                   const View& input, const View& residual, const View& output) {
  if (input.numel() == 0) return;
  const std::int64_t extent = input.shape[1];
  const Scratch map(context_.memory, static_cast<std::size_t>(extent) * 2 * sizeof(double));
  dispatch_floating("batch_norm_apply", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    auto* const at_map = static_cast<Channel<T>*>(map.data());
    DTRAIN_LAUNCH("batch_norm_apply", context_.stream, blocks_for(context_, extent), kThreads,
                  batch_map_kernel<Channel<T>>, extent, ChannelArrays<Channel<T>>(channels), at_map);
    apply<T>(context_, rule, input, at_map, residual, output);
  });
}

void CudaKernels::batch_norm_grad_sums(const BatchNormChannels& channels, const View& input,
                                       const View& output, const View& grad_output, const View& grad_residual,
                                       const View& grad_weight, const View& grad_bias, const View& sums) {
  constexpr std::string_view kName = "batch_norm_grad_sums";
  if (input.numel() == 0) {
    fill(sums, 0);
    if (grad_weight.data != nullptr) fill(grad_weight, 0);
    if (grad_bias.data != nullptr) fill(grad_bias, 0);
    return;
  }
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Channel<T>;
    const ChannelArrays<C> at(channels);
    dispatch_width<T>(can_go_wide<T>(input, grad_output, output, grad_residual), [&](auto width) {
      constexpr int V = decltype(width)::value;
      const GradientSums<T, V> terms{Pixels<const T, V>(grad_output), Pixels<const T, V>(input),
                                     Gate<T, V>(output, channels.bias), Pixels<T, V>(grad_residual), at};
      sum_up<V>(context_, kName, input, terms,
                SetTotalsAndGradients<C>{SetTotals{input.shape[1], sums.as<double>()}, at,
                                         PerChannel<C>(grad_weight), PerChannel<C>(grad_bias)});
    });
  });
}

void CudaKernels::batch_norm_grad_input(const BatchNormChannels& channels, const View& sums,
                                        const View& input, const View& output, const View& grad_output,
                                        const View& grad_input) {
  constexpr std::string_view kName = "batch_norm_grad_input";
  if (input.numel() == 0) return;
  const std::int64_t extent = input.shape[1];
  const Scratch map(context_.memory, static_cast<std::size_t>(extent) * kGradientMap * sizeof(double));
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Channel<T>;
    auto* const at_map = static_cast<C*>(map.data());
    const ChannelArrays<C> at(channels);
    DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, extent), kThreads, totals_map_kernel<C>,
                  extent, sums.as<const double>(), at, at_map);
    input_gradient<T>(context_, kName, grad_output, output, channels.bias, input, at_map, grad_input);
  });
}

}  // namespace dtrain::cuda
