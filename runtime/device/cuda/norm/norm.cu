// Batch normalisation in one piece. The variance is taken around the channel's first pixel, so that one pass
// over memory is enough.
#include "runtime/device/cuda/norm/norm.cuh"

namespace dtrain::cuda {

using namespace norm;

namespace {

/// Statistics, running statistics, and the affine map (scale, shift) each channel goes through.
template <class T>
__global__ void statistics_kernel(std::int64_t pixels, std::int64_t channels, std::int64_t slices,
                                  BatchNormRule rule, Pixels<const T> input, const double* sums,
                                  ChannelArrays<Channel<T>> at, Channel<T>* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    double a, b;
    add_slices(sums, slices, channels, c, a, b);
    const double count = static_cast<double>(pixels), offset = a / count;
    const double variance = max(b / count - offset * offset, 0.0);
    at.set_statistics(c, rule, count, static_cast<double>(load(input(0, c))) + offset, variance);
    at.set_map(c, channels, at.mean[c], at.inv_std[c], map);
  }
}

template <class C>
__global__ void running_map_kernel(std::int64_t channels, BatchNormRule rule, ChannelArrays<C> at, C* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    const C inv_std = static_cast<C>(1.0 / sqrt(static_cast<double>(at.running_var[c]) + rule.eps));
    at.set_map(c, channels, at.running_mean[c], inv_std, map);
  }
}

/// Gradients of weight and bias, and the map to the gradient of the input.
template <class C>
__global__ void gradient_map_kernel(std::int64_t pixels, std::int64_t channels, std::int64_t slices,
                                    const double* sums, ChannelArrays<C> at, PerChannel<C> grad_weight,
                                    PerChannel<C> grad_bias, C* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    double a, b;
    add_slices(sums, slices, channels, c, a, b);
    at.set_gradients(c, a, b, grad_weight, grad_bias);
    at.set_gradient_map(c, channels, static_cast<double>(pixels), a, b, map);
  }
}

}  // namespace

void CudaKernels::batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                             const View& residual, const View& output) {
  require_channels("batch_norm", channels, input);
  require_statistics("batch_norm", channels);
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
    sum_slices(context_, "batch_norm", cut, Moments<T>{in}, at_sums);
    DTRAIN_LAUNCH("batch_norm", context_.stream, blocks_for(context_, cut.channels), kThreads,
                  statistics_kernel<T>, cut.pixels, cut.channels, cut.slices, rule, in, at_sums,
                  ChannelArrays<Channel<T>>(channels), at_map);
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
    DTRAIN_LAUNCH("batch_norm_inference", context_.stream, blocks_for(context_, extent), kThreads,
                  running_map_kernel<Channel<T>>, extent, rule, ChannelArrays<Channel<T>>(channels), at_map);
    apply<T>(context_, rule, input, at_map, residual, output);
  });
}

void CudaKernels::batch_norm_backward(const BatchNormRule& rule, const BatchNormChannels& channels,
                                      const View& input, const View& output, const View& grad_output,
                                      const View& grad_input, const View& grad_residual,
                                      const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "batch_norm_backward";
  require_channels(kName, channels, input);
  require_channel_gradients(kName, input, grad_weight, grad_bias);
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
    const PerChannel<const C> mean(channels.mean);
    sum_slices(context_, kName, cut, GradientSums<T>{grad, open, in, Pixels<T>(grad_residual), mean},
               at_sums);
    DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, cut.channels), kThreads,
                  gradient_map_kernel<C>, cut.pixels, cut.channels, cut.slices, at_sums, at,
                  PerChannel<C>(grad_weight), PerChannel<C>(grad_bias), at_map);
    DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, input.numel()), kThreads,
                  input_gradient_kernel<T>, input.numel(), cut.channels, grad, open, in, mean, at_map,
                  Pixels<T>(grad_input));
  });
}

}  // namespace dtrain::cuda
