// gather, scatter_add, cumsum and sort: kernels that work along one dimension, line by line.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/strided_loop.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cpu {
namespace {

/// Throws before anything has been written.
void require_indices_below(std::string_view operation, const View& index, std::int64_t extent) {
  walk<const std::int64_t>(index, [&](std::int64_t n, const std::int64_t* p, std::int64_t step) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t value = p[i * step];
      if (value >= 0 && value < extent) continue;
      refuse(operation,
             "index expected 0 to " + std::to_string(extent - 1) + ", got " + std::to_string(value));
    }
  });
}

/// Calls `line(offset of each view …)` for every line along `dim` of views that agree elsewhere; `shape` says
/// how many lines there are.
template <std::size_t N, class Line>
void for_lines(const Dims& shape, int dim, const std::array<Dims, N>& strides, Line&& line) {
  const StridedLoop<N> loop(without_dim(shape, dim), strides);
  loop.run([&](const auto& at, std::int64_t n, const auto& step) {
    auto here = at;
    for (std::int64_t i = 0; i < n; ++i) {
      line(here);
      for (std::size_t a = 0; a < N; ++a) here[a] += step[a];
    }
  });
}

template <class T>
void cumsum_line(std::int64_t n, const T* in, std::int64_t in_step, T* out, std::int64_t out_step) {
  std::conditional_t<std::is_integral_v<T>, std::uint64_t, double> total = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    total += static_cast<decltype(total)>(load(in[i * in_step]));
    out[i * out_step] = cast<T>(total);
  }
}

/// Whether a comes before b; NaN counts as the largest.
template <class C>
bool precedes(C a, C b, bool descending) {
  if (descending) std::swap(a, b);
  return a < b || (a == a && b != b);
}

/// The places of the first `places.size()` elements of a line in sorted order.
template <class T>
void sort_line(const T* in, std::int64_t step, bool descending, std::vector<std::int64_t>& order,
               std::size_t wanted) {
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto before = [&](std::int64_t i, std::int64_t j) {
    const auto a = load(in[i * step]), b = load(in[j * step]);
    if (precedes(a, b, descending)) return true;
    return !precedes(b, a, descending) && i < j;
  };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(wanted);
  if (end == order.end()) return std::sort(order.begin(), order.end(), before);
  std::partial_sort(order.begin(), end, order.end(), before);
}

}  // namespace

void CpuKernels::gather(const View& in, int dim, const View& index, const View& out) {
  require_indices_below("gather", index, in.shape[dim]);
  const std::int64_t n = index.shape[dim], in_step = in.strides[dim];
  dispatch_bits(in.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_lines<3>(out.shape, dim, {out.strides, index.strides, in.strides}, [&](const auto& at) {
      T* to = out.as<T>() + at[0];
      const std::int64_t* which = index.as<const std::int64_t>() + at[1];
      const T* from = in.as<const T>() + at[2];
      for (std::int64_t i = 0; i < n; ++i) {
        to[i * out.strides[dim]] = from[which[i * index.strides[dim]] * in_step];
      }
    });
  });
}

void CpuKernels::scatter_add(const View& in, int dim, const View& index, const View& out) {
  require_indices_below("scatter_add", index, out.shape[dim]);
  const std::int64_t n = index.shape[dim], out_step = out.strides[dim];
  dispatch_arithmetic("scatter_add", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_lines<3>(in.shape, dim, {in.strides, index.strides, out.strides}, [&](const auto& at) {
      const T* from = in.as<const T>() + at[0];
      const std::int64_t* which = index.as<const std::int64_t>() + at[1];
      T* to = out.as<T>() + at[2];
      for (std::int64_t i = 0; i < n; ++i) {
        T& element = to[which[i * index.strides[dim]] * out_step];
        element = cast<T>(load(element) + load(from[i * in.strides[dim]]));
      }
    });
  });
}

void CpuKernels::cumsum(const View& in, int dim, bool reverse, const View& out) {
  const std::int64_t n = in.shape[dim], sign = reverse ? -1 : 1;
  if (n == 0) return;
  const std::int64_t in_first = reverse ? (n - 1) * in.strides[dim] : 0;
  const std::int64_t out_first = reverse ? (n - 1) * out.strides[dim] : 0;
  dispatch_arithmetic("cumsum", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_lines<2>(out.shape, dim, {out.strides, in.strides}, [&](const auto& at) {
      cumsum_line<T>(n, in.as<const T>() + at[1] + in_first, sign * in.strides[dim],
                     out.as<T>() + at[0] + out_first, sign * out.strides[dim]);
    });
  });
}

void CpuKernels::sort(const View& in, int dim, bool descending, const View& values, const View& indices) {
  const std::int64_t wanted = values.shape[dim];
  std::vector<std::int64_t> order(static_cast<std::size_t>(in.shape[dim]));
  dispatch_arithmetic("sort", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    for_lines<3>(in.shape, dim, {in.strides, values.strides, indices.strides}, [&](const auto& at) {
      const T* from = in.as<const T>() + at[0];
      sort_line<T>(from, in.strides[dim], descending, order, static_cast<std::size_t>(wanted));
      for (std::int64_t i = 0; i < wanted; ++i) {
        const std::int64_t place = order[static_cast<std::size_t>(i)];
        values.as<T>()[at[1] + i * values.strides[dim]] = from[place * in.strides[dim]];
        indices.as<std::int64_t>()[at[2] + i * indices.strides[dim]] = place;
      }
    });
  });
}

}  // namespace dtrain::cpu
