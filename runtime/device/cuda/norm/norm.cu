// Batch normalisation in one piece: a pass that sums, a small one over channels, and a pass that writes.
#include "runtime/device/cuda/norm/apply.cuh"
#include "runtime/device/cuda/norm/sums.cuh"

namespace dtrain::cuda {

using namespace norm;

namespace {

/// Statistics, running statistics, and the affine map (scale, shift) each channel goes through.
template <class C>
struct SetStatistics {
  __device__ void operator()(std::int64_t c, double count, double mean, double squares) const {
    at.set_statistics(c, rule, count, mean, squares / count);
    at.set_map(c, channels, at.mean[c], at.inv_std[c], map);
  }
  std::int64_t channels;
  BatchNormRule rule;
  ChannelArrays<C> at;
  C* map;
};

/// Gradients of weight and bias, and the map to the gradient of the input.
template <class C>
struct SetGradients {
  __device__ void operator()(std::int64_t c, double count, double sum, double products) const {
    at.set_gradients(c, sum, products, grad_weight, grad_bias);
    at.set_gradient_map(c, channels, count, sum, products, map);
  }
  std::int64_t channels;
  ChannelArrays<C> at;
  PerChannel<C> grad_weight, grad_bias;
  C* map;
};

template <class C>
__global__ void running_map_kernel(std::int64_t channels, BatchNormRule rule, ChannelArrays<C> at, C* map) {
  for (std::int64_t c = first_item(); c < channels; c += item_step()) {
    const C inv_std = static_cast<C>(1.0 / sqrt(static_cast<double>(at.running_var[c]) + rule.eps));
    at.set_map(c, channels, at.running_mean[c], inv_std, map);
  }
}

}  // namespace

void CudaKernels::batch_norm(const BatchNormRule& rule, const BatchNormChannels& channels, const View& input,
                             const View& residual, const View& output) {
  if (input.numel() == 0) return;
  const std::int64_t extent = input.shape[1];
  const Scratch map(context_.memory, static_cast<std::size_t>(extent) * 2 * sizeof(double));
  dispatch_floating("batch_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Channel<T>;
    auto* const at_map = static_cast<C*>(map.data());
    dispatch_width<T>(can_go_wide<T>(input), [&](auto width) {
      constexpr int V = decltype(width)::value;
      sum_up<V>(context_, "batch_norm", input, Moments<T, V>{Pixels<const T, V>(input)},
                SetStatistics<C>{extent, rule, ChannelArrays<C>(channels), at_map});
    });
    apply<T>(context_, rule, input, at_map, residual, output);
  });
}

void CudaKernels::batch_norm_inference(const BatchNormRule& rule, const BatchNormChannels& channels,
                                       const View& input, const View& residual, const View& output) {
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
  const bool gated = rule.activation == Activation::relu;
  if (input.numel() == 0) return;
  const View gate = gated ? output : View{};
  const std::int64_t extent = input.shape[1];
  const Scratch map(context_.memory, static_cast<std::size_t>(extent) * kGradientMap * sizeof(double));
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    using C = Channel<T>;
    auto* const at_map = static_cast<C*>(map.data());
    const ChannelArrays<C> at(channels);
    dispatch_width<T>(can_go_wide<T>(input, grad_output, gate, grad_residual), [&](auto width) {
      constexpr int V = decltype(width)::value;
      const GradientSums<T, V> terms{Pixels<const T, V>(grad_output), Pixels<const T, V>(input),
                                     Gate<T, V>(gate, channels.bias), Pixels<T, V>(grad_residual), at};
      sum_up<V>(context_, kName, input, terms,
                SetGradients<C>{extent, at, PerChannel<C>(grad_weight), PerChannel<C>(grad_bias), at_map});
    });
    // What was gated for the residual need not be gated again.
    const bool behind = grad_residual.data != nullptr;
    input_gradient<T>(context_, kName, behind ? grad_residual : grad_output, behind ? View{} : gate,
                      channels.bias, input, at_map, grad_input);
  });
}

}  // namespace dtrain::cuda
