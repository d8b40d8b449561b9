// gather, scatter_add, cumsum and sort: kernels that work along one dimension, line by line.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/divisor.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

/// A thread takes an element of `out`. `places` holds offsets in out, index and in, the last without `dim`.
template <class T>
__global__ void gather_kernel(Layout<3> places, std::int64_t limit, std::int64_t in_step, const T* in,
                              const std::int64_t* index, T* out, FaultRecord* faults) {
  for (std::int64_t e = first_item(); e < places.count; e += item_step()) {
    std::int64_t at[3];
    places.locate(e, at);
    const std::int64_t chosen = index[at[1]];
    if (chosen < 0 || chosen >= limit) {
      note_fault(faults, FaultKind::gather, e, chosen, limit);
      continue;
    }
    out[at[0]] = in[at[2] + chosen * in_step];
  }
}

/// The extent and the steps of a line in three arrays.
struct Line {
  std::int64_t count, first_step, second_step, third_step;
};

/// A thread takes a line of `in`, from its first element to its last, so that sums have one order. `lines`
/// holds offsets in in, index and out.
template <class T>
__global__ void scatter_add_kernel(Layout<3> lines, Line line, std::int64_t limit, const T* in,
                                   const std::int64_t* index, T* out, FaultRecord* faults) {
  for (std::int64_t l = first_item(); l < lines.count; l += item_step()) {
    std::int64_t at[3];
    lines.locate(l, at);
    for (std::int64_t i = 0; i < line.count; ++i) {
      const std::int64_t chosen = index[at[1] + i * line.second_step];
      if (chosen < 0 || chosen >= limit) {
        note_fault(faults, FaultKind::scatter_add, l * line.count + i, chosen, limit);
        continue;
      }
      T& element = out[at[2] + chosen * line.third_step];
      element = cast<T>(load(element) + load(in[at[0] + i * line.first_step]));
    }
  }
}

/// A warp takes a line, 32 elements at a time. `lines` holds offsets in out and in.
template <class T>
__global__ void cumsum_kernel(Layout<2> lines, Line line, const T* in, T* out) {
  using Sum = std::conditional_t<std::is_integral_v<T>, unsigned long long, double>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (std::int64_t l = first_item() / kWarp; l < lines.count; l += item_step() / kWarp) {
    std::int64_t at[2];
    lines.locate(l, at);
    Sum before = 0;
    for (std::int64_t base = 0; base < line.count; base += kWarp) {
      const std::int64_t i = base + lane;
      Sum total = i < line.count ? static_cast<Sum>(load(in[at[1] + i * line.second_step])) : Sum(0);
      for (int step = 1; step < kWarp; step *= 2) {
        const Sum left = __shfl_up_sync(kAllLanes, total, step);
        if (lane >= step) total += left;
      }
      total += before;
      if (i < line.count) out[at[0] + i * line.first_step] = cast<T>(total);
      before = __shfl_sync(kAllLanes, total, kWarp - 1);
    }
  }
}

/// Whether element i of a line comes before element j; NaN counts as the largest, equal ones keep their
/// order.
template <class T>
__device__ bool comes_before(const T* in, std::int64_t step, bool descending, std::int64_t i,
                             std::int64_t j) {
  const Compute<T> a = load(in[(descending ? j : i) * step]), b = load(in[(descending ? i : j) * step]);
  if (a < b || (a == a && b != b)) return true;
  return !(b < a || (b == b && a != a)) && i < j;
}

/// What a merge sort has of all lines so far: places in a line, in order within each run. Null: one by one.
using Order = const std::int64_t*;

__device__ inline std::int64_t place_in(Order order, std::int64_t first, std::int64_t i) {
  return order == nullptr ? i : order[first + i];
}

/// Merges neighbouring runs of `width`: a thread takes an element and finds by bisection how many of the
/// other run come before it. `lines` holds offsets in in, values and indices.
template <class T>
__global__ void merge_kernel(Layout<3> lines, std::int64_t count, Divisor by_count, std::int64_t width,
                             Divisor by_two_widths, bool descending, std::int64_t step, const T* in,
                             Order order, std::int64_t* merged) {
  for (std::int64_t e = first_item(); e < lines.count * count; e += item_step()) {
    const std::int64_t l = by_count(e), i = e - l * count, first = l * count;
    std::int64_t at[3];
    lines.locate(l, at);
    const std::int64_t place = place_in(order, first, i);
    const std::int64_t left = by_two_widths(i) * (2 * width);
    const std::int64_t middle = left + width < count ? left + width : count;
    const std::int64_t right = middle + width < count ? middle + width : count;
    const std::int64_t other = i < middle ? middle : left;
    std::int64_t low = other, high = i < middle ? right : middle;
    while (low < high) {
      const std::int64_t half = low + (high - low) / 2;
      if (comes_before(in + at[0], step, descending, place_in(order, first, half), place)) {
        low = half + 1;
      } else {
        high = half;
      }
    }
    const std::int64_t own = i < middle ? i - left : i - middle;
    merged[first + left + own + (low - other)] = place;
  }
}

/// The first `wanted` elements of each line in `order`.
template <class T>
__global__ void take_kernel(Layout<3> lines, std::int64_t count, std::int64_t wanted, Divisor by_wanted,
                            Line line, const T* in, Order order, T* values, std::int64_t* indices) {
  for (std::int64_t e = first_item(); e < lines.count * wanted; e += item_step()) {
    const std::int64_t l = by_wanted(e), i = e - l * wanted;
    std::int64_t at[3];
    lines.locate(l, at);
    const std::int64_t place = place_in(order, l * count, i);
    values[at[1] + i * line.second_step] = in[at[0] + place * line.first_step];
    indices[at[2] + i * line.third_step] = place;
  }
}

Dims without_step(Dims strides, int dim) {
  strides[dim] = 0;
  return strides;
}

}  // namespace

void CudaKernels::gather(const View& in, int dim, const View& index, const View& out) {
  if (out.numel() == 0) return;
  const Layout<3> places =
      make_layout<3>(out.shape, {out.strides, index.strides, without_step(in.strides, dim)});
  dispatch_bits(in.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("gather", context_.stream, blocks_for(context_, places.count), kThreads, gather_kernel<T>,
                  places, in.shape[dim], in.strides[dim], in.as<const T>(), index.as<const std::int64_t>(),
                  out.as<T>(), context_.faults.record());
  });
}

void CudaKernels::scatter_add(const View& in, int dim, const View& index, const View& out) {
  if (in.numel() == 0) return;
  const Layout<3> lines =
      make_layout<3>(without_dim(in.shape, dim), {in.strides, index.strides, out.strides});
  const Line line{in.shape[dim], in.strides[dim], index.strides[dim], out.strides[dim]};
  dispatch_arithmetic("scatter_add", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("scatter_add", context_.stream, blocks_for(context_, lines.count), kThreads,
                  scatter_add_kernel<T>, lines, line, out.shape[dim], in.as<const T>(),
                  index.as<const std::int64_t>(), out.as<T>(), context_.faults.record());
  });
}

void CudaKernels::cumsum(const View& in, int dim, bool reverse, const View& out) {
  if (in.numel() == 0) return;
  const std::int64_t count = in.shape[dim], sign = reverse ? -1 : 1;
  const Layout<2> lines = make_layout<2>(without_dim(in.shape, dim), {out.strides, in.strides});
  const Line line{count, sign * out.strides[dim], sign * in.strides[dim], 0};
  const std::int64_t first = reverse ? count - 1 : 0;
  dispatch_arithmetic("cumsum", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("cumsum", context_.stream, blocks_for(context_, lines.count * kWarp), kThreads,
                  cumsum_kernel<T>, lines, line, in.as<const T>() + first * in.strides[dim],
                  out.as<T>() + first * out.strides[dim]);
  });
}

void CudaKernels::sort(const View& in, int dim, bool descending, const View& values, const View& indices) {
  if (values.numel() == 0) return;
  const std::int64_t count = in.shape[dim];
  const Layout<3> lines =
      make_layout<3>(without_dim(in.shape, dim), {in.strides, values.strides, indices.strides});
  const Line line{count, in.strides[dim], values.strides[dim], indices.strides[dim]};
  const auto bytes = static_cast<std::size_t>(lines.count * count) * sizeof(std::int64_t);
  const Scratch even(context_.memory, count > 1 ? bytes : 0), odd(context_.memory, count > 2 ? bytes : 0);
  dispatch_arithmetic("sort", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    Order order = nullptr;
    for (std::int64_t width = 1; width < count; width *= 2) {
      auto* const merged = static_cast<std::int64_t*>(order == even.data() ? odd.data() : even.data());
      DTRAIN_LAUNCH("sort", context_.stream, blocks_for(context_, lines.count * count), kThreads,
                    merge_kernel<T>, lines, count, Divisor(count), width, Divisor(2 * width), descending,
                    line.first_step, in.as<const T>(), order, merged);
      order = merged;
    }
    DTRAIN_LAUNCH("sort", context_.stream, blocks_for(context_, values.numel()), kThreads, take_kernel<T>,
                  lines, count, values.shape[dim], Divisor(values.shape[dim]), line, in.as<const T>(), order,
                  values.as<T>(), indices.as<std::int64_t>());
  });
}

}  // namespace dtrain::cuda
