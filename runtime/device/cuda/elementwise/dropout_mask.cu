// Dropout masks: a thread draws four neighbours of a row.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/divisor.h"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/philox.h"

namespace dtrain::cuda {
namespace {

struct MaskShape {
  std::int64_t rows, count;  ///< elements of a row
  std::int64_t first;        ///< place of the first of them in the whole row

  /// Draws are for the places 0 to 3, 4 to 7, … of the whole row: how many touch the part here.
  __host__ __device__ std::int64_t quads() const { return (first % 4 + count + 3) / 4; }
};

template <class T>
__global__ void mask_kernel(MaskShape shape, Divisor by_quads, std::uint64_t seed, std::uint64_t layer,
                            const std::int64_t* step, const std::int64_t* names, double keep, T* out) {
  const std::uint64_t key = philox_key(seed, layer, static_cast<std::uint64_t>(*step));
  const auto limit = static_cast<float>(keep);
  const T kept = cast<T>(1.0 / keep), dropped = cast<T>(0.0);
  const std::int64_t quads = shape.quads();
  for (std::int64_t i = first_item(); i < shape.rows * quads; i += item_step()) {
    const std::int64_t row = by_quads(i), quad = shape.first / 4 + i - row * quads;
    const std::int64_t name = names == nullptr ? row : names[row];
    const Philox random(key, static_cast<std::uint64_t>(quad), static_cast<std::uint64_t>(name));
    T* const to = out + row * shape.count;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::int64_t at = quad * 4 + k - shape.first;
      if (at >= 0 && at < shape.count) to[at] = unit_interval(random.words[k]) < limit ? kept : dropped;
    }
  }
}

}  // namespace

void CudaKernels::dropout_mask(const MaskNumbers& numbers, double keep, const View& out) {
  const std::int64_t rows = mask_rows(numbers, out);
  if (out.numel() == 0) return;
  const MaskShape shape{rows, out.numel() / rows, numbers.first};
  dispatch_floating("dropout_mask", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t threads = rows * shape.quads();
    DTRAIN_LAUNCH("dropout_mask", context_.stream, blocks_for(context_, threads), kThreads, mask_kernel<T>,
                  shape, Divisor(shape.quads()), numbers.seed, numbers.layer,
                  numbers.step.as<const std::int64_t>(), numbers.rows.as<const std::int64_t>(), keep,
                  out.as<T>());
  });
}

}  // namespace dtrain::cuda
