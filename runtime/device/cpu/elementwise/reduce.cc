// Reductions and indexing. Sums of f32 and bf16 are accumulated in double, in memory order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/strided_loop.h"
#include "runtime/device/functors.h"

namespace dtrain::cpu {
namespace {

/// The dimensions of `in` that stay, and those that are reduced, each with extent 1 where the other has them.
struct Split {
  Dims kept, reduced;
};

Split split_dims(const View& in, const View& out) {
  Split split{in.shape, in.shape};
  for (int i = 0; i < in.rank(); ++i) {
    const bool reduced = out.shape[i] == 1;
    split.kept[i] = reduced ? 1 : in.shape[i];
    split.reduced[i] = reduced ? in.shape[i] : 1;
  }
  return split;
}

template <class T>
using SumType = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

template <class T>
void sum(const Split& split, const View& in, double divisor, const View& out) {
  const StridedLoop<1> inside(split.reduced, {in.strides});
  const StridedLoop<2> outside(split.kept, {in.strides, out.strides});
  outside.run([&](const auto& at, std::int64_t n, const auto& step) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T* from = in.as<const T>() + at[0] + i * step[0];
      SumType<T> total = 0;
      inside.run([&](const auto& start, std::int64_t count, const auto& stride) {
        for (std::int64_t j = 0; j < count; ++j) total += load(from[start[0] + j * stride[0]]);
      });
      if constexpr (!std::is_integral_v<T>) total /= divisor;
      out.as<T>()[at[1] + i * step[1]] = cast<T>(total);
    }
  });
}

template <class T, class Op>
void extreme(Op op, const Split& split, const View& in, const View& out) {
  const StridedLoop<1> inside(split.reduced, {in.strides});
  const StridedLoop<2> outside(split.kept, {in.strides, out.strides});
  outside.run([&](const auto& at, std::int64_t n, const auto& step) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T* from = in.as<const T>() + at[0] + i * step[0];
      auto best = load(from[0]);
      inside.run([&](const auto& start, std::int64_t count, const auto& stride) {
        for (std::int64_t j = 0; j < count; ++j) best = op(best, load(from[start[0] + j * stride[0]]));
      });
      out.as<T>()[at[1] + i * step[1]] = cast<T>(best);
    }
  });
}

void require_indices(std::string_view operation, const View& index, std::int64_t extent) {
  for (std::int64_t i = 0; i < index.shape[0]; ++i) {
    const std::int64_t value = index.as<const std::int64_t>()[i * index.strides[0]];
    if (value >= 0 && value < extent) continue;
    refuse(operation, "index[" + std::to_string(i) + "] expected 0 to " + std::to_string(extent - 1) +
                          ", got " + std::to_string(value));
  }
}

/// Row `row` of `view`: the same array without its first dimension.
View row_of(const View& view, std::int64_t row) {
  View result{view.as<char>() + row * view.strides[0] * static_cast<std::int64_t>(size_of(view.dtype)),
              view.dtype,
              {},
              {}};
  for (int i = 1; i < view.rank(); ++i) {
    result.shape.push_back(view.shape[i]);
    result.strides.push_back(view.strides[i]);
  }
  return result;
}

}  // namespace

void CpuKernels::reduce(Reduction op, const View& in, const View& out) {
  const Split split = split_dims(in, out);
  const std::int64_t count = split.reduced.product();
  const double divisor = op == Reduction::mean ? static_cast<double>(count) : 1.0;
  dispatch_arithmetic("reduce", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (op == Reduction::max) return extreme<T>(functor::Max{}, split, in, out);
    if (op == Reduction::min) return extreme<T>(functor::Min{}, split, in, out);
    sum<T>(split, in, divisor, out);
  });
}

void CpuKernels::argmax(const View& in, const View& out) {
  const Dims kept = without_dim(in.shape, in.rank() - 1);
  const std::int64_t columns = in.shape.back(), column_step = in.strides.back();
  dispatch_arithmetic("argmax", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    const StridedLoop<2> loop(kept, {in.strides, out.strides});
    loop.run([&](const auto& at, std::int64_t n, const auto& step) {
      for (std::int64_t i = 0; i < n; ++i) {
        const T* row = in.as<const T>() + at[0] + i * step[0];
        std::int64_t best = 0;
        for (std::int64_t c = 1; c < columns; ++c) {
          const auto now = load(row[c * column_step]), before = load(row[best * column_step]);
          if (now > before || (now != now && before == before)) best = c;
        }
        out.as<std::int64_t>()[at[1] + i * step[1]] = best;
      }
    });
  });
}

void CpuKernels::index_select(const View& in, const View& index, const View& out) {
  require_indices("index_select", index, in.shape[0]);
  for (std::int64_t i = 0; i < index.shape[0]; ++i) {
    copy(row_of(in, index.as<const std::int64_t>()[i * index.strides[0]]), row_of(out, i));
  }
}

void CpuKernels::index_add(const View& in, const View& index, const View& out) {
  require_indices("index_add", index, out.shape[0]);
  for (std::int64_t i = 0; i < index.shape[0]; ++i) {
    accumulate(row_of(in, i), 1.0, row_of(out, index.as<const std::int64_t>()[i * index.strides[0]]));
  }
}

}  // namespace dtrain::cpu
