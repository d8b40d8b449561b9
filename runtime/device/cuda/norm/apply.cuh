// The passes of batch normalisation that write an activation: forward's, and the gradient of the input.
#pragma once

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/norm/channels.cuh"

namespace dtrain::cuda::norm {

/// A pass' elements, V channels each.
template <int V>
struct Walk {
  using Index = std::conditional_t<(V > 1), std::int32_t, std::int64_t>;
  explicit Walk(const View& view)
      : packs(static_cast<Index>(view.numel() / V)),
        packs_of_pixel(static_cast<Index>(view.shape[1] / V)),
        channels(static_cast<Index>(view.shape[1])),
        by_packs_of_pixel(view.shape[1] / V) {}
  Index packs, packs_of_pixel, channels;
  Divisor by_packs_of_pixel;
};

template <class T, int V>
__global__ void apply_kernel(Walk<V> walk, bool relu, Pixels<const T, V> input, const Channel<T>* map,
                             Pixels<const T, V> residual, Pixels<T, V> output) {
  using C = Channel<T>;
  using Index = typename Walk<V>::Index;
  for (std::int64_t i = first_item(); i < walk.packs; i += item_step()) {
    const Index p = static_cast<Index>(walk.by_packs_of_pixel(i));
    const Index c = (static_cast<Index>(i) - p * walk.packs_of_pixel) * V;
    const auto x = input.load(p, c);
    Pack<T, V> added, result;
    if (residual) added = residual.load(p, c);
    C scale[V], shift[V];
    load_wide(map + c, scale);
    load_wide(map + walk.channels + c, shift);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C y = scale_and_shift(static_cast<C>(load(x.at[v])), scale[v], shift[v]);
      if (residual) y += static_cast<C>(load(added.at[v]));
      result.at[v] = cast<T>(relu && y < C(0) ? C(0) : y);
    }
    output.store(p, c, result);
  }
}

template <class T, int V>
__global__ void input_gradient_kernel(Walk<V> walk, Pixels<const T, V> grad, Gate<T, V> gate,
                                      Pixels<const T, V> input, const Channel<T>* map, Pixels<T, V> to) {
  using C = Channel<T>;
  using Index = typename Walk<V>::Index;
  const C *const average = map, *const slope = map + walk.channels, *const scale = map + 2 * walk.channels,
                 *const shift = map + 3 * walk.channels, *const mean = map + 4 * walk.channels;
  for (std::int64_t i = first_item(); i < walk.packs; i += item_step()) {
    const Index p = static_cast<Index>(walk.by_packs_of_pixel(i));
    const Index c = (static_cast<Index>(i) - p * walk.packs_of_pixel) * V;
    const auto x = input.load(p, c), dz = grad.load(p, c), y = gate.load_written(p, c);
    C scales[V], shifts[V], means[V], averages[V], slopes[V];
    load_wide(scale + c, scales);
    load_wide(shift + c, shifts);
    load_wide(mean + c, means);
    load_wide(average + c, averages);
    load_wide(slope + c, slopes);
    const auto through = gate.pass(dz, x, y, scales, shifts);
    Pack<T, V> result;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C dy = static_cast<C>(load(through.at[v])), off = static_cast<C>(load(x.at[v])) - means[v];
      result.at[v] = cast<T>((dy - averages[v] - off * slopes[v]) * scales[v]);
    }
    to.store(p, c, result);
  }
}

/// output = act(input · scale + shift + residual); `map` has each channel's scale, then each one's shift.
template <class T>
void apply(const Context& context, const BatchNormRule& rule, const View& input, const Channel<T>* map,
           const View& residual, const View& output) {
  dispatch_width<T>(can_go_wide<T>(input, residual, output), [&](auto width) {
    constexpr int V = decltype(width)::value;
    DTRAIN_LAUNCH("batch_norm", context.stream, blocks_for(context, input.numel() / V), kThreads,
                  (apply_kernel<T, V>), Walk<V>(input), rule.activation == Activation::relu,
                  Pixels<const T, V>(input), map, Pixels<const T, V>(residual), Pixels<T, V>(output));
  });
}

/// The gradient of the input from that of the output; `gate` is what forward wrote, null data where the
/// gradient is behind the activation already or there is none, `bias` as Gate has it.
template <class T>
void input_gradient(const Context& context, std::string_view operation, const View& grad, const View& gate,
                    const View& bias, const View& input, const Channel<T>* map, const View& to) {
  dispatch_width<T>(can_go_wide<T>(grad, gate, input, to), [&](auto width) {
    constexpr int V = decltype(width)::value;
    DTRAIN_LAUNCH(operation, context.stream, blocks_for(context, input.numel() / V), kThreads,
                  (input_gradient_kernel<T, V>), Walk<V>(input), Pixels<const T, V>(grad),
                  Gate<T, V>(gate, bias), Pixels<const T, V>(input), map, Pixels<T, V>(to));
  });
}

}  // namespace dtrain::cuda::norm
