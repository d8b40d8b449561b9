// Pooling, alone and after bias and relu. Gradients gather: every element of the input's gradient is computed
// by one thread from the windows that cover it, so that nothing is added atomically.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/float_pair.cuh"
#include "runtime/device/cuda/pool/windows.cuh"
#include "runtime/device/cuda/pool/windows.h"

namespace dtrain::cuda {
namespace {

// Loads of a thread that are on their way: of elements of a window's row, and of windows that cover an
// element.
constexpr int kElementsAhead = 4, kWindowsAhead = 2;

/// As for_each_ahead, for the few elements of a row: a loop that the compiler is kept from copying.
template <int N, class Load, class Use>
__device__ __forceinline__ void for_few_ahead(std::int64_t first, std::int64_t end, Load load, Use use) {
#pragma unroll 1
  for (std::int64_t i = first; i < end; i += N) {
    decltype(load(i)) near[N] = {};
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (i + n < end) near[n] = load(i + n);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (i + n < end) use(near[n], i + n);
    }
  }
}

/// Calls `use(element, place)` for the elements of `at`'s window that lie inside the input.
template <class T, class Use>
__device__ void for_window(const Pool2dGeometry& g, const Image<const T>& in, const Place& at, Use use) {
  const std::int64_t top = at.h * g.stride_h - g.pad_h, left = at.w * g.stride_w - g.pad_w;
  const std::int64_t first = left < 0 ? -left : 0, end = min(g.kernel_w, in.extent[3] - left);
#pragma unroll 1
  for (std::int64_t kh = 0; kh < g.kernel_h; ++kh) {
    const std::int64_t h = top + kh;
    if (h < 0 || h >= in.extent[2]) continue;
    for_few_ahead<kElementsAhead>(
        first, end, [&](std::int64_t kw) { return in(at.n, at.c, h, left + kw); },
        [&](const T& element, std::int64_t kw) { use(element, kh * g.kernel_w + kw); });
  }
}

/// A pooling's windows as kernels walk them back from the input.
struct Windows : Pool2dGeometry {
  explicit Windows(const Pool2dGeometry& pool)
      : Pool2dGeometry(pool), by_stride_h(pool.stride_h), by_stride_w(pool.stride_w) {}
  Divisor by_stride_h, by_stride_w;
};

/// Calls `use(load(oh, ow), place)` for the windows that cover `at`, in order.
template <class T, class Load, class Use>
__device__ void for_covering(const Windows& g, const Image<const T>& out, const Place& at, Load load,
                             Use use) {
  const std::int64_t top = at.h + g.pad_h, left = at.w + g.pad_w;
  const std::int64_t first_h = top < g.kernel_h ? 0 : g.by_stride_h(top - g.kernel_h) + 1;
  const std::int64_t first_w = left < g.kernel_w ? 0 : g.by_stride_w(left - g.kernel_w) + 1;
  const std::int64_t end_w = min(out.extent[3], g.by_stride_w(left) + 1);
#pragma unroll 1
  for (std::int64_t oh = first_h; oh < out.extent[2] && oh * g.stride_h <= top; ++oh) {
    for_few_ahead<kWindowsAhead>(
        first_w, end_w, [&](std::int64_t ow) { return load(oh, ow); },
        [&](const auto& read, std::int64_t ow) {
          use(read, (top - oh * g.stride_h) * g.kernel_w + left - ow * g.stride_w);
        });
  }
}

/// `sum` over `window` elements, rounded to T. One division in double precision would take a GPU as long as
/// the window.
template <class T>
__device__ T mean_of(FloatPair sum, std::int64_t window) {
  return cast<T>(rounded(sum) / static_cast<float>(window));
}
template <class T>
__device__ T mean_of(double sum, std::int64_t window) {
  return cast<T>(sum / static_cast<double>(window));
}

template <class T>
__global__ void average_kernel(Pool2dGeometry g, Image<const T> in, Image<T> out) {
  for (std::int64_t i = first_item(); i < count_of(out); i += item_step()) {
    const Place at = place_of(out, i);
    SumType<Compute<T>> sum{};
    for_window(g, in, at, [&](const T& element, std::int64_t) { sum = plus(sum, load(element)); });
    out(at.n, at.c, at.h, at.w) = mean_of<T>(sum, g.kernel_h * g.kernel_w);
  }
}

/// A thread takes V neighbouring channels.
template <class T, class Index, int V>
__global__ void maximum_kernel(Pool2dGeometry g, Image<const Pack<T, V>> in, Image<Pack<T, V>> out,
                               Image<Pack<Index, V>> indices) {
  for (std::int64_t i = first_item(); i < count_of(out); i += item_step()) {
    const Place at = place_of(out, i);
    Compute<T> best[V];
    int best_place[V] = {};
    bool found = false;
#pragma unroll
    for (int v = 0; v < V; ++v) best[v] = -static_cast<Compute<T>>(INFINITY);
    for_window(g, in, at, [&](const Pack<T, V>& elements, std::int64_t place) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const auto value = load(elements.at[v]);
        if (found && !(value > best[v] || value != value)) continue;
        best[v] = value;
        best_place[v] = static_cast<int>(place);
      }
      found = true;
    });
    Pack<T, V> largest;
    Pack<Index, V> places;
#pragma unroll
    for (int v = 0; v < V; ++v)
      largest.at[v] = cast<T>(best[v]), places.at[v] = static_cast<Index>(best_place[v]);
    out(at.n, at.c, at.h, at.w) = largest;
    if (indices.data != nullptr) indices(at.n, at.c, at.h, at.w) = places;
  }
}

template <class T>
__global__ void average_gradient_kernel(Windows g, Image<const T> grad, Image<T> to) {
  const auto share = Compute<T>(1) / static_cast<Compute<T>>(g.kernel_h * g.kernel_w);
  for (std::int64_t i = first_item(); i < count_of(to); i += item_step()) {
    const Place at = place_of(to, i);
    Compute<T> sum = 0;
    for_covering(
        g, grad, at, [&](std::int64_t oh, std::int64_t ow) { return grad(at.n, at.c, oh, ow); },
        [&](const T& through, std::int64_t) { sum += load(through) * share; });
    to(at.n, at.c, at.h, at.w) = cast<T>(sum);
  }
}

/// A window's gradient, and which of its elements it is of.
template <class T, class Index>
struct Chosen {
  T grad;
  Index index;
};

/// A thread takes V neighbouring channels.
template <class T, class Index, int V>
__global__ void maximum_gradient_kernel(Windows g, Image<const Pack<T, V>> grad,
                                        Image<const Pack<Index, V>> indices, Image<Pack<T, V>> to) {
  using Window = Chosen<Pack<T, V>, Pack<Index, V>>;
  for (std::int64_t i = first_item(); i < count_of(to); i += item_step()) {
    const Place at = place_of(to, i);
    Compute<T> sums[V] = {};
    for_covering(
        g, grad, at,
        [&](std::int64_t oh, std::int64_t ow) {
          return Window{grad(at.n, at.c, oh, ow), indices(at.n, at.c, oh, ow)};
        },
        [&](const Window& window, std::int64_t place) {
#pragma unroll
          for (int v = 0; v < V; ++v) {
            if (static_cast<std::int64_t>(window.index.at[v]) == place) sums[v] += load(window.grad.at[v]);
          }
        });
    Pack<T, V> whole;
#pragma unroll
    for (int v = 0; v < V; ++v) whole.at[v] = cast<T>(sums[v]);
    to(at.n, at.c, at.h, at.w) = whole;
  }
}

/// The mask: for averages one bit for each element of the window that is positive or NaN; for maxima the
/// place + 1 of the largest of those, or 0.
template <class T, PoolKind kKind>
__global__ void relu_pool_kernel(Pool2dGeometry g, Image<const T> in, const T* bias, std::int64_t bias_step,
                                 Image<T> out, Image<std::uint8_t> mask) {
  constexpr bool kAverage = kKind == PoolKind::avg;
  for (std::int64_t i = first_item(); i < count_of(out); i += item_step()) {
    const Place at = place_of(out, i);
    const Compute<T> shift = bias == nullptr ? Compute<T>(0) : load(bias[at.c * bias_step]);
    SumType<Compute<T>> sum{};
    Compute<T> best = 0;
    unsigned bits = 0, best_place = 0;
    for_window(g, in, at, [&](const T& element, std::int64_t place) {
      const auto raw = load(element) + shift;
      const auto value = raw < Compute<T>(0) ? Compute<T>(0) : raw;  // NaN stays
      if (value <= Compute<T>(0)) return;
      if constexpr (kAverage) {
        sum = plus(sum, value);
        bits |= 1U << place;
      } else if (value > best || value != value) {
        best = value;
        best_place = static_cast<unsigned>(place) + 1;
      }
    });
    T result;
    if constexpr (kAverage) {
      result = mean_of<T>(sum, g.kernel_h * g.kernel_w);
    } else {
      result = cast<T>(best);
    }
    out(at.n, at.c, at.h, at.w) = result;
    if (mask.data != nullptr)
      mask(at.n, at.c, at.h, at.w) = static_cast<std::uint8_t>(kAverage ? bits : best_place);
  }
}

template <class T>
__global__ void relu_pool_gradient_kernel(Windows g, Image<const T> grad, Image<const std::uint8_t> mask,
                                          Image<T> to) {
  const bool average = g.kind == PoolKind::avg;
  const auto share = Compute<T>(1) / static_cast<Compute<T>>(average ? g.kernel_h * g.kernel_w : 1);
  for (std::int64_t i = first_item(); i < count_of(to); i += item_step()) {
    const Place at = place_of(to, i);
    Compute<T> sum = 0;
    for_covering(
        g, grad, at,
        [&](std::int64_t oh, std::int64_t ow) {
          return Chosen<T, std::uint8_t>{grad(at.n, at.c, oh, ow), mask(at.n, at.c, oh, ow)};
        },
        [&](const Chosen<T, std::uint8_t>& window, std::int64_t place) {
          const unsigned bits = window.index;
          const bool hit = average ? (bits >> place & 1U) != 0 : bits == static_cast<unsigned>(place) + 1;
          if (hit) sum += load(window.grad) * share;
        });
    to(at.n, at.c, at.h, at.w) = cast<T>(sum);
  }
}

/// Calls `f` with a value of the type of a max pooling's indices.
template <class F>
void dispatch_index(std::string_view operation, const View& indices, F&& f) {
  if (indices.data == nullptr || indices.dtype == DType::u8) return f(std::uint8_t{});
  if (indices.dtype == DType::i32) return f(std::int32_t{});
  refuse_dtype(operation, indices.dtype);
}

/// Calls `f` with the channels that a thread takes, as a constant: those of 16 bytes where all views are so
/// laid out.
template <class T, class Index, class F>
void dispatch_packs(std::initializer_list<const View*> images, const View& indices, F&& f) {
  bool wide = is_in_packs<Index, kWide<T>>(indices);
  for (const View* image : images) wide = wide && is_in_packs<T, kWide<T>>(*image);
  if (wide) return f(std::integral_constant<int, kWide<T>>());
  f(std::integral_constant<int, 1>());
}

}  // namespace

void CudaKernels::pool2d(const Pool2dGeometry& geometry, const View& input, const View& output,
                         const View& indices) {
  constexpr std::string_view kName = "pool2d";
  if (output.numel() == 0) return;
  const unsigned blocks = blocks_for(context_, output.numel());
  dispatch_floating(kName, output.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (geometry.kind == PoolKind::avg) {
      DTRAIN_LAUNCH(kName, context_.stream, blocks, kThreads, average_kernel<T>, geometry,
                    Image<const T>(input), Image<T>(output));
      return;
    }
    dispatch_index("pool2d indices", indices, [&](auto index_tag) {
      using Index = decltype(index_tag);
      dispatch_packs<T, Index>({&input, &output}, indices, [&](auto width) {
        constexpr int V = decltype(width)::value;
        DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, output.numel() / V), kThreads,
                      (maximum_kernel<T, Index, V>), geometry, (in_packs<const Pack<T, V>>(input)),
                      (in_packs<Pack<T, V>>(output)), (in_packs<Pack<Index, V>>(indices)));
      });
    });
  });
}

void CudaKernels::pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output,
                                  const View& indices, const View& grad_input) {
  constexpr std::string_view kName = "pool2d_backward";
  if (grad_input.numel() == 0) return;
  const unsigned blocks = blocks_for(context_, grad_input.numel());
  dispatch_floating(kName, grad_input.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (geometry.kind == PoolKind::avg) {
      DTRAIN_LAUNCH(kName, context_.stream, blocks, kThreads, average_gradient_kernel<T>, Windows(geometry),
                    Image<const T>(grad_output), Image<T>(grad_input));
      return;
    }
    dispatch_index("pool2d_backward indices", indices, [&](auto index_tag) {
      using Index = decltype(index_tag);
      dispatch_packs<T, Index>({&grad_output, &grad_input}, indices, [&](auto width) {
        constexpr int V = decltype(width)::value;
        DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, grad_input.numel() / V), kThreads,
                      (maximum_gradient_kernel<T, Index, V>), Windows(geometry),
                      (in_packs<const Pack<T, V>>(grad_output)), (in_packs<const Pack<Index, V>>(indices)),
                      (in_packs<Pack<T, V>>(grad_input)));
      });
    });
  });
}

void relu_pool(const Context& context, const Pool2dGeometry& pool, const View& input, const View& bias,
               const View& output, const View& mask) {
  dispatch_floating("conv2d_relu_pool2d", output.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto launch = [&](auto kind) {
      DTRAIN_LAUNCH("conv2d_relu_pool2d", context.stream, blocks_for(context, output.numel()), kThreads,
                    (relu_pool_kernel<T, decltype(kind)::value>), pool, Image<const T>(input),
                    bias.as<const T>(), bias.data == nullptr ? 0 : bias.strides[0], Image<T>(output),
                    Image<std::uint8_t>(mask));
    };
    if (pool.kind == PoolKind::avg) return launch(std::integral_constant<PoolKind, PoolKind::avg>());
    launch(std::integral_constant<PoolKind, PoolKind::max>());
  });
}

void relu_pool_backward(const Context& context, const Pool2dGeometry& pool, const View& grad_output,
                        const View& mask, const View& grad_input) {
  dispatch_floating("conv2d_relu_pool2d_backward", grad_input.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("conv2d_relu_pool2d_backward", context.stream, blocks_for(context, grad_input.numel()),
                  kThreads, relu_pool_gradient_kernel<T>, Windows(pool), Image<const T>(grad_output),
                  Image<const std::uint8_t>(mask), Image<T>(grad_input));
  });
}

}  // namespace dtrain::cuda
