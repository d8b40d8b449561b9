// Activations of batch normalisation as a kernel walks them: pixels (n, h, w) and channels. Where an array is
// channels-last a thread takes as many neighbouring channels as 16 bytes hold, by 32-bit offsets.
#pragma once

#include "runtime/device/cuda/pool/windows.cuh"

namespace dtrain::cuda::norm {

/// The type per-channel arrays have beside activations of T.
template <class T>
using Channel = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Null data where there is no array. V > 1: dense and channels-last, fewer than 2³¹ elements, aligned to 16.
template <class T, int V>
struct Pixels {
  using Index = std::conditional_t<(V > 1), std::int32_t, std::int64_t>;
  using Value = std::remove_const_t<T>;

  explicit Pixels(const View& view)
      : image(view),
        channels(static_cast<Index>(image.extent[1])),
        dense(view.data != nullptr && view.is_channels_last()) {}
  __device__ explicit operator bool() const { return image.data != nullptr; }
  __device__ Pack<Value, V> load(Index pixel, Index c) const {
    if constexpr (V > 1) return *reinterpret_cast<const Pack<Value, V>*>(image.data + pixel * channels + c);
    return {{place(pixel, c)}};
  }
  __device__ void store(Index pixel, Index c, const Pack<Value, V>& values) const {
    if constexpr (V > 1) {
      *reinterpret_cast<Pack<Value, V>*>(image.data + pixel * channels + c) = values;
    } else {
      place(pixel, c) = values.at[0];
    }
  }

 private:
  __device__ T& place(std::int64_t pixel, std::int64_t c) const {
    if (dense) return image.data[pixel * channels + c];
    const std::int64_t rest = image.by_extent[3](pixel), n = image.by_extent[2](rest);
    return image(n, c, rest - n * image.extent[2], pixel - rest * image.extent[3]);
  }

  Image<T> image;
  Index channels;
  bool dense;
};

/// Whether all of them, as far as they are there, can be walked kWide<T> channels at a time.
template <class T, class... Views>
bool can_go_wide(const Views&... views) {
  const auto fits = [](const View& view) {
    return view.data == nullptr || (view.is_channels_last() && view.shape[1] % kWide<T> == 0 &&
                                    view.numel() <= INT32_MAX && is_aligned(view.data, 16));
  };
  return (fits(views) && ...);
}

/// Calls `f` with the number of channels a thread takes, as a type.
template <class T, class F>
void dispatch_width(bool wide, F&& f) {
  wide ? f(std::integral_constant<int, kWide<T>>{}) : f(std::integral_constant<int, 1>{});
}

/// x · a + b, rounded after each: the same in every kernel, where a fused one would depend on the compiler.
__device__ inline float scale_and_shift(float x, float a, float b) { return __fadd_rn(__fmul_rn(x, a), b); }
__device__ inline double scale_and_shift(double x, double a, double b) {
  return __dadd_rn(__dmul_rn(x, a), b);
}

}  // namespace dtrain::cuda::norm
