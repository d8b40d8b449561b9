// Walks several strided arrays of one shape together: dimensions are sorted by the first array's strides and
// merged where possible, so that dense arrays of any layout become one long inner loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/device/view.h"

namespace dtrain::cpu {

template <std::size_t N>
class StridedLoop {
 public:
  using Offsets = std::array<std::int64_t, N>;

  StridedLoop(const Dims& shape, const std::array<Dims, N>& strides) {
    for (int i = 0; i < shape.rank(); ++i) {
      empty_ = empty_ || shape[i] == 0;
      if (shape[i] == 1) continue;
      extent_[rank_] = shape[i];
      for (std::size_t a = 0; a < N; ++a) stride_[rank_][a] = strides[a][i];
      ++rank_;
    }
    sort();
    merge();
  }

  /// Calls `inner(offsets, count, steps)` for every innermost run: element i of array a is at
  /// offsets[a] + i · steps[a].
  template <class Inner>
  void run(Inner&& inner) const {
    run(0, slices(), inner);
  }
  /// The same for slices [begin, end) alone.
  template <class Inner>
  void run(std::int64_t begin, std::int64_t end, Inner&& inner) const {
    if (empty_ || begin >= end) return;
    if (rank_ == 0) return inner(Offsets{}, std::int64_t{1}, Offsets{});
    std::array<std::int64_t, kMaxRank> index{}, extent = extent_;
    Offsets offsets{};
    const int last = rank_ - 1;
    if (last > 0) {
      extent[0] = end - begin;
      for (std::size_t a = 0; a < N; ++a) offsets[a] = begin * stride_[0][a];
    }
    for (;;) {
      inner(offsets, extent[last], stride_[last]);
      int d = last - 1;
      for (; d >= 0; --d) {
        for (std::size_t a = 0; a < N; ++a) offsets[a] += stride_[d][a];
        if (++index[d] < extent[d]) break;
        for (std::size_t a = 0; a < N; ++a) offsets[a] -= stride_[d][a] * extent[d];
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

  /// Parts that can be run apart: along the outermost dimension, where that is not the one of a run.
  std::int64_t slices() const { return rank_ > 1 ? extent_[0] : 1; }
  /// Elements of a slice.
  std::int64_t slice_size() const {
    std::int64_t size = empty_ ? 0 : 1;
    for (int d = rank_ > 1 ? 1 : 0; d < rank_; ++d) size *= extent_[d];
    return size;
  }

  /// One run is all there is.
  bool is_one_run() const { return rank_ <= 1 && !empty_; }
  /// Elements of an innermost run, and how far apart they are in the first array (0 where there is one
  /// element).
  std::int64_t run_length() const { return rank_ == 0 ? 1 : extent_[rank_ - 1]; }
  std::int64_t run_step() const { return rank_ == 0 ? 0 : stride_[rank_ - 1][0]; }

 private:
  void sort() {
    for (int i = 1; i < rank_; ++i) {
      for (int j = i; j > 0 && stride_[j - 1][0] < stride_[j][0]; --j) {
        std::swap(stride_[j - 1], stride_[j]);
        std::swap(extent_[j - 1], extent_[j]);
      }
    }
  }

  void merge() {
    int kept = 0;
    for (int i = 1; i < rank_; ++i) {
      bool joins = true;
      for (std::size_t a = 0; a < N; ++a) joins = joins && stride_[kept][a] == stride_[i][a] * extent_[i];
      if (joins) {
        extent_[kept] *= extent_[i];
      } else {
        extent_[++kept] = extent_[i];
      }
      stride_[kept] = stride_[i];
    }
    if (rank_ > 0) rank_ = kept + 1;
  }

  int rank_ = 0;
  bool empty_ = false;
  std::array<std::int64_t, kMaxRank> extent_{};
  std::array<Offsets, kMaxRank> stride_{};
};

/// `inner(count, pointer0, step0)` over one view.
template <class T, class Inner>
void walk(const View& a, Inner&& inner) {
  const StridedLoop<1> loop(a.shape, {a.strides});
  T* base = a.as<T>();
  loop.run([&](const auto& at, std::int64_t n, const auto& step) { inner(n, base + at[0], step[0]); });
}

/// `inner(count, pointer0, step0, pointer1, step1)`; the first view leads the order.
template <class T0, class T1, class Inner>
void walk(const View& a, const View& b, Inner&& inner) {
  const StridedLoop<2> loop(a.shape, {a.strides, b.strides});
  T0* pa = a.as<T0>();
  T1* pb = b.as<T1>();
  loop.run([&](const auto& at, std::int64_t n, const auto& step) {
    inner(n, pa + at[0], step[0], pb + at[1], step[1]);
  });
}

template <class T0, class T1, class T2, class Inner>
void walk(const View& a, const View& b, const View& c, Inner&& inner) {
  const StridedLoop<3> loop(a.shape, {a.strides, b.strides, c.strides});
  T0* pa = a.as<T0>();
  T1* pb = b.as<T1>();
  T2* pc = c.as<T2>();
  loop.run([&](const auto& at, std::int64_t n, const auto& step) {
    inner(n, pa + at[0], step[0], pb + at[1], step[1], pc + at[2], step[2]);
  });
}

}  // namespace dtrain::cpu
