// What kernels over images share: an array by its four strides, and one thread an element in memory order.
#pragma once

#include "runtime/device/cuda/divisor.h"
#include "runtime/device/cuda/loads.cuh"

namespace dtrain::cuda {

/// A rank-4 array [N, C, H, W].
template <class T>
struct Image {
  explicit Image(const View& view) : data(static_cast<T*>(view.data)) {
    if (view.rank() != 4) return;
    for (int i = 0; i < 4; ++i) {
      extent[i] = view.shape[i];
      stride[i] = view.strides[i];
      by_extent[i] = Divisor(extent[i]);
    }
  }
  __device__ T& operator()(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return data[n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3]];
  }
  T* data;
  std::int64_t extent[4] = {}, stride[4] = {};
  Divisor by_extent[4];
};

/// A channels-last image whose elements are V neighbouring channels.
template <class Packs>
Image<Packs> in_packs(const View& view) {
  View packs = view;
  if (view.data == nullptr) return Image<Packs>(packs);
  constexpr std::int64_t kChannels = sizeof(Packs) / sizeof(Packs::at[0]);
  packs.shape[1] /= kChannels;
  for (const int dim : {0, 2, 3}) packs.strides[dim] /= kChannels;
  return Image<Packs>(packs);
}
/// Whether `view` can be read so.
template <class T, int V>
bool is_in_packs(const View& view) {
  if (view.data == nullptr) return true;
  if (view.strides[1] != 1 || view.shape[1] % V != 0 || !is_aligned(view.data, V * sizeof(T))) return false;
  return view.strides[0] % V == 0 && view.strides[2] % V == 0 && view.strides[3] % V == 0;
}

struct Place {
  std::int64_t n, c, h, w;
};

/// The place of element `index` when neighbouring threads take neighbouring memory: channels last or first.
template <class T>
__device__ inline Place place_of(const Image<T>& image, std::int64_t index) {
  const auto split = [&](int dim) {
    const std::int64_t rest = image.by_extent[dim](index), here = index - rest * image.extent[dim];
    index = rest;
    return here;
  };
  Place at{};
  if (image.stride[1] == 1) {
    at.c = split(1);
    at.w = split(3);
    at.h = split(2);
  } else {
    at.w = split(3);
    at.h = split(2);
    at.c = split(1);
  }
  at.n = index;
  return at;
}

template <class T>
__host__ __device__ inline std::int64_t count_of(const Image<T>& image) {
  return image.extent[0] * image.extent[1] * image.extent[2] * image.extent[3];
}

}  // namespace dtrain::cuda
