// Max and average pooling in plain loops over any strides. The index of a maximum is its place in the window,
// kh · kernel_w + kw, so that u8 is enough for windows of up to 256 elements.
#include <limits>

#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/naive.h"

namespace dtrain::cpu::naive {
namespace {

/// One channel of one image: base pointer and strides of rows and columns.
template <class T>
struct Plane {
  Plane(const View& view, std::int64_t n, std::int64_t c)
      : data(view.as<T>() + n * view.strides[0] + c * view.strides[1]),
        row(view.strides[2]),
        column(view.strides[3]) {}
  T& operator()(std::int64_t h, std::int64_t w) const { return data[h * row + w * column]; }
  T* data;
  std::int64_t row, column;
};

/// Calls `f(h, w, place)` for the elements of the window at (oh, ow) that lie inside the input.
template <class F>
void for_window(const Pool2dGeometry& g, const Dims& input, std::int64_t oh, std::int64_t ow, F&& f) {
  for (std::int64_t kh = 0; kh < g.kernel_h; ++kh) {
    const std::int64_t h = oh * g.stride_h - g.pad_h + kh;
    if (h < 0 || h >= input[2]) continue;
    for (std::int64_t kw = 0; kw < g.kernel_w; ++kw) {
      const std::int64_t w = ow * g.stride_w - g.pad_w + kw;
      if (w >= 0 && w < input[3]) f(h, w, kh * g.kernel_w + kw);
    }
  }
}

template <class T, class Index>
void max_plane(const Pool2dGeometry& g, const Dims& shape, const Plane<const T>& in, const Plane<T>& out,
               const Plane<Index>* indices, std::int64_t oh, std::int64_t ow) {
  auto best = -std::numeric_limits<Compute<T>>::infinity();
  std::int64_t place = 0;
  bool found = false;
  for_window(g, shape, oh, ow, [&](std::int64_t h, std::int64_t w, std::int64_t here) {
    const auto value = load(in(h, w));
    if (found && !(value > best || value != value)) return;
    found = true;
    best = value;
    place = here;
  });
  out(oh, ow) = cast<T>(best);
  if (indices != nullptr) (*indices)(oh, ow) = static_cast<Index>(place);
}

template <class F>
void for_planes(const View& output, F&& f) {
  for (std::int64_t n = 0; n < output.shape[0]; ++n) {
    for (std::int64_t c = 0; c < output.shape[1]; ++c) f(n, c);
  }
}

template <class F>
void for_plane(const View& output, F&& f) {
  for (std::int64_t oh = 0; oh < output.shape[2]; ++oh) {
    for (std::int64_t ow = 0; ow < output.shape[3]; ++ow) f(oh, ow);
  }
}

template <class T, class Index>
void max_forward(const Pool2dGeometry& g, const View& input, const View& output, const View& indices) {
  for_planes(output, [&](std::int64_t n, std::int64_t c) {
    const Plane<const T> in(input, n, c);
    const Plane<T> out(output, n, c);
    const bool keep = indices.data != nullptr;
    const Plane<Index> places(keep ? indices : output, n, c);
    for_plane(output, [&](std::int64_t oh, std::int64_t ow) {
      max_plane<T, Index>(g, input.shape, in, out, keep ? &places : nullptr, oh, ow);
    });
  });
}

template <class T>
void average_forward(const Pool2dGeometry& g, const View& input, const View& output) {
  const auto window = static_cast<double>(g.kernel_h * g.kernel_w);
  for_planes(output, [&](std::int64_t n, std::int64_t c) {
    const Plane<const T> in(input, n, c);
    const Plane<T> out(output, n, c);
    for_plane(output, [&](std::int64_t oh, std::int64_t ow) {
      double sum = 0;
      for_window(g, input.shape, oh, ow,
                 [&](std::int64_t h, std::int64_t w, std::int64_t) { sum += load(in(h, w)); });
      out(oh, ow) = cast<T>(sum / window);
    });
  });
}

template <class T>
void clear(const View& view) {
  for_planes(view, [&](std::int64_t n, std::int64_t c) {
    const Plane<T> plane(view, n, c);
    for_plane(view, [&](std::int64_t h, std::int64_t w) { plane(h, w) = T{}; });
  });
}

template <class T, class Index>
void max_backward(const Pool2dGeometry& g, const View& grad_output, const View& indices,
                  const View& grad_input) {
  clear<T>(grad_input);
  for_planes(grad_output, [&](std::int64_t n, std::int64_t c) {
    const Plane<const T> from(grad_output, n, c);
    const Plane<const Index> places(indices, n, c);
    const Plane<T> to(grad_input, n, c);
    for_plane(grad_output, [&](std::int64_t oh, std::int64_t ow) {
      const std::int64_t place = places(oh, ow);
      T& element =
          to(oh * g.stride_h - g.pad_h + place / g.kernel_w, ow * g.stride_w - g.pad_w + place % g.kernel_w);
      element = cast<T>(load(element) + load(from(oh, ow)));
    });
  });
}

template <class T>
void average_backward(const Pool2dGeometry& g, const View& grad_output, const View& grad_input) {
  clear<T>(grad_input);
  const auto share = Compute<T>(1) / static_cast<Compute<T>>(g.kernel_h * g.kernel_w);
  for_planes(grad_output, [&](std::int64_t n, std::int64_t c) {
    const Plane<const T> from(grad_output, n, c);
    const Plane<T> to(grad_input, n, c);
    for_plane(grad_output, [&](std::int64_t oh, std::int64_t ow) {
      const auto value = load(from(oh, ow)) * share;
      for_window(g, grad_input.shape, oh, ow, [&](std::int64_t h, std::int64_t w, std::int64_t) {
        to(h, w) = cast<T>(load(to(h, w)) + value);
      });
    });
  });
}

/// Calls `f` with a value of the type of a max pooling's indices.
template <class F>
void dispatch_index(std::string_view operation, const View& indices, F&& f) {
  if (indices.data == nullptr || indices.dtype == DType::u8) return f(std::uint8_t{});
  if (indices.dtype == DType::i32) return f(std::int32_t{});
  refuse_dtype(operation, indices.dtype);
}

template <class T>
std::uint8_t mask_of(const Pool2dGeometry& g, const Dims& shape, const Plane<const T>& in, std::int64_t oh,
                     std::int64_t ow) {
  unsigned bits = 0, best_place = 0;
  Compute<T> best = 0;
  for_window(g, shape, oh, ow, [&](std::int64_t h, std::int64_t w, std::int64_t place) {
    const auto value = load(in(h, w));
    if (value <= 0) return;
    bits |= 1U << place;
    if (!(value > best || value != value)) return;
    best = value;
    best_place = static_cast<unsigned>(place) + 1;
  });
  return static_cast<std::uint8_t>(g.kind == PoolKind::avg ? bits : best_place);
}

bool in_mask(PoolKind kind, std::uint8_t mask, std::int64_t place) {
  return kind == PoolKind::avg ? (mask >> place & 1) != 0 : mask == place + 1;
}

}  // namespace

void pool2d(const Pool2dGeometry& geometry, const View& input, const View& output, const View& indices) {
  dispatch_floating("pool2d", output.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (geometry.kind == PoolKind::avg) return average_forward<T>(geometry, input, output);
    dispatch_index("pool2d indices", indices, [&](auto index_tag) {
      max_forward<T, decltype(index_tag)>(geometry, input, output, indices);
    });
  });
}

void pool2d_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& indices,
                     const View& grad_input) {
  dispatch_floating("pool2d_backward", grad_input.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (geometry.kind == PoolKind::avg) return average_backward<T>(geometry, grad_output, grad_input);
    dispatch_index("pool2d_backward indices", indices, [&](auto index_tag) {
      max_backward<T, decltype(index_tag)>(geometry, grad_output, indices, grad_input);
    });
  });
}

void relu_pool(const Pool2dGeometry& geometry, const View& input, const View& output, const View& mask) {
  pool2d(geometry, input, output, View{});
  if (mask.data == nullptr) return;
  dispatch_floating("conv2d_relu_pool2d", output.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_planes(output, [&](std::int64_t n, std::int64_t c) {
      const Plane<const T> in(input, n, c);
      const Plane<std::uint8_t> to(mask, n, c);
      for_plane(output, [&](std::int64_t oh, std::int64_t ow) {
        to(oh, ow) = mask_of<T>(geometry, input.shape, in, oh, ow);
      });
    });
  });
}

void relu_pool_backward(const Pool2dGeometry& geometry, const View& grad_output, const View& mask,
                        const View& grad_input) {
  const double window = static_cast<double>(geometry.kernel_h * geometry.kernel_w);
  dispatch_floating("conv2d_relu_pool2d_backward", grad_output.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto share = static_cast<Compute<T>>(geometry.kind == PoolKind::avg ? 1 / window : 1);
    clear<T>(grad_input);
    for_planes(grad_output, [&](std::int64_t n, std::int64_t c) {
      const Plane<const T> from(grad_output, n, c);
      const Plane<const std::uint8_t> masks(mask, n, c);
      const Plane<T> to(grad_input, n, c);
      for_plane(grad_output, [&](std::int64_t oh, std::int64_t ow) {
        for_window(geometry, grad_input.shape, oh, ow,
                   [&](std::int64_t h, std::int64_t w, std::int64_t place) {
                     if (!in_mask(geometry.kind, masks(oh, ow), place)) return;
                     to(h, w) = cast<T>(load(from(oh, ow)) * share);
                   });
      });
    });
  });
}

}  // namespace dtrain::cpu::naive
