// The elements that a max pooling chose, read again: the adjoint of its backward. In plain loops over any
// strides; only gradients of gradients need it.
#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"

namespace dtrain::cpu {
namespace {

/// An index is a place in the window, kh · kernel_w + kw (naive_pool.cc).
template <class T, class Index>
void pick(const Pool2dGeometry& g, const View& input, const View& indices, const View& output) {
  const auto offset = [](const View& view, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    return n * view.strides[0] + c * view.strides[1] + h * view.strides[2] + w * view.strides[3];
  };
  for (std::int64_t n = 0; n < output.shape[0]; ++n) {
    for (std::int64_t c = 0; c < output.shape[1]; ++c) {
      for (std::int64_t oh = 0; oh < output.shape[2]; ++oh) {
        for (std::int64_t ow = 0; ow < output.shape[3]; ++ow) {
          const std::int64_t place = indices.as<const Index>()[offset(indices, n, c, oh, ow)];
          const std::int64_t h = oh * g.stride_h - g.pad_h + place / g.kernel_w;
          const std::int64_t w = ow * g.stride_w - g.pad_w + place % g.kernel_w;
          output.as<T>()[offset(output, n, c, oh, ow)] = input.as<const T>()[offset(input, n, c, h, w)];
        }
      }
    }
  }
}

}  // namespace

void CpuKernels::pool2d_pick(const Pool2dGeometry& geometry, const View& input, const View& indices,
                             const View& output) {
  if (output.numel() == 0) return;
  dispatch_bits(output.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (indices.dtype == DType::u8) return pick<T, std::uint8_t>(geometry, input, indices, output);
    if (indices.dtype == DType::i32) return pick<T, std::int32_t>(geometry, input, indices, output);
    refuse_dtype("pool2d_pick indices", indices.dtype);
  });
}

}  // namespace dtrain::cpu
