// The elements that a max pooling chose, read again: only gradients of gradients need it.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/pool/windows.cuh"

namespace dtrain::cuda {
namespace {

/// An index is a place in the window, kh · kernel_w + kw.
template <class T, class Index>
__global__ void pick_kernel(Pool2dGeometry g, Divisor by_kernel_w, Image<const T> input,
                            Image<const Index> indices, Image<T> output) {
  for (std::int64_t e = first_item(); e < count_of(output); e += item_step()) {
    const Place at = place_of(output, e);
    const std::int64_t place = indices(at.n, at.c, at.h, at.w);
    const std::int64_t row = by_kernel_w(place);
    const std::int64_t h = at.h * g.stride_h - g.pad_h + row;
    const std::int64_t w = at.w * g.stride_w - g.pad_w + place - row * g.kernel_w;
    output(at.n, at.c, at.h, at.w) = input(at.n, at.c, h, w);
  }
}

}  // namespace

void CudaKernels::pool2d_pick(const Pool2dGeometry& geometry, const View& input, const View& indices,
                              const View& output) {
  if (output.numel() == 0) return;
  const auto pick = [&](auto tag, auto index_tag) {
    using T = decltype(tag);
    using Index = decltype(index_tag);
    DTRAIN_LAUNCH("pool2d_pick", context_.stream, blocks_for(context_, output.numel()), kThreads,
                  (pick_kernel<T, Index>), geometry, Divisor(geometry.kernel_w), Image<const T>(input),
                  Image<const Index>(indices), Image<T>(output));
  };
  dispatch_bits(output.dtype, [&](auto tag) {
    if (indices.dtype == DType::u8) return pick(tag, std::uint8_t{});
    if (indices.dtype == DType::i32) return pick(tag, std::int32_t{});
    refuse_dtype("pool2d_pick indices", indices.dtype);
  });
}

}  // namespace dtrain::cuda
