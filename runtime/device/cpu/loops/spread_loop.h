// The walks of strided_loop.h on all threads of a worker, for loops whose elements do not depend on each
// other. What is cut follows from shapes alone.
#pragma once

#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/strided_loop.h"

namespace dtrain::cpu {

/// Calls inner(offsets, count, steps) as loop.run() does, from any thread: long runs in parts, short ones by
/// slices of the outermost dimension. element_ns: what an element takes.
template <std::size_t N, class Inner>
void spread(const StridedLoop<N>& loop, double element_ns, const Inner& inner) {
  if (loop.run_length() < kElementsOfChunk && loop.slices() > 1) {
    const std::int64_t size = loop.slice_size();
    for_ranges(loop.slices(), rows_of_chunk(size), element_ns * static_cast<double>(size),
               [&](std::int64_t begin, std::int64_t end) { loop.run(begin, end, inner); });
    return;
  }
  loop.run([&](const auto& at, std::int64_t n, const auto& step) {
    for_ranges(n, kElementsOfChunk, element_ns, [&](std::int64_t begin, std::int64_t end) {
      auto from = at;
      for (std::size_t a = 0; a < N; ++a) from[a] += begin * step[a];
      inner(from, end - begin, step);
    });
  });
}

/// walk() of strided_loop.h, spread.
template <class T, class Inner>
void spread_walk(double element_ns, const View& a, const Inner& inner) {
  T* const base = a.as<T>();
  spread(StridedLoop<1>(a.shape, {a.strides}), element_ns,
         [&](const auto& at, std::int64_t n, const auto& step) { inner(n, base + at[0], step[0]); });
}

template <class T0, class T1, class Inner>
void spread_walk(double element_ns, const View& a, const View& b, const Inner& inner) {
  T0* const pa = a.as<T0>();
  T1* const pb = b.as<T1>();
  spread(StridedLoop<2>(a.shape, {a.strides, b.strides}), element_ns,
         [&](const auto& at, std::int64_t n, const auto& step) {
           inner(n, pa + at[0], step[0], pb + at[1], step[1]);
         });
}

template <class T0, class T1, class T2, class Inner>
void spread_walk(double element_ns, const View& a, const View& b, const View& c, const Inner& inner) {
  T0* const pa = a.as<T0>();
  T1* const pb = b.as<T1>();
  T2* const pc = c.as<T2>();
  spread(StridedLoop<3>(a.shape, {a.strides, b.strides, c.strides}), element_ns,
         [&](const auto& at, std::int64_t n, const auto& step) {
           inner(n, pa + at[0], step[0], pb + at[1], step[1], pc + at[2], step[2]);
         });
}

}  // namespace dtrain::cpu
