// What kernels over images share: an array by its four strides, and one thread an element in memory order.
#pragma once

#include "runtime/device/cuda/launch.cuh"

namespace dtrain::cuda {

/// A rank-4 array [N, C, H, W].
template <class T>
struct Image {
  explicit Image(const View& view) : data(static_cast<T*>(view.data)) {
    if (view.rank() != 4) return;
    for (int i = 0; i < 4; ++i) extent[i] = view.shape[i], stride[i] = view.strides[i];
  }
  __device__ T& operator()(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return data[n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3]];
  }
  T* data;
  std::int64_t extent[4] = {}, stride[4] = {};
};

struct Place {
  std::int64_t n, c, h, w;
};

/// The place of element `index` when neighbouring threads take neighbouring memory: channels last or first.
/// Divisions of 64 bits cost a GPU ten times those of 32.
template <class T, class Index>
__device__ inline Place place_by(const Image<T>& image, Index index) {
  const auto split = [&](std::int64_t extent) {
    const Index rest = index / static_cast<Index>(extent), here = index - rest * static_cast<Index>(extent);
    index = rest;
    return static_cast<std::int64_t>(here);
  };
  Place at{};
  if (image.stride[1] == 1) {
    at.c = split(image.extent[1]);
    at.w = split(image.extent[3]);
    at.h = split(image.extent[2]);
  } else {
    at.w = split(image.extent[3]);
    at.h = split(image.extent[2]);
    at.c = split(image.extent[1]);
  }
  at.n = static_cast<std::int64_t>(index);
  return at;
}

template <class T>
__host__ __device__ inline std::int64_t count_of(const Image<T>& image) {
  return image.extent[0] * image.extent[1] * image.extent[2] * image.extent[3];
}

template <class T>
__device__ inline Place place_of(const Image<T>& image, std::int64_t index) {
  return index <= INT32_MAX ? place_by(image, static_cast<std::uint32_t>(index)) : place_by(image, index);
}

}  // namespace dtrain::cuda
