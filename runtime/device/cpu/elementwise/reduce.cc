// Reductions and indexing. Sums of f32 and bf16 are accumulated in double, four elements at a time (sums.h).
#include <algorithm>
#include <vector>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/extremes.h"
#include "runtime/device/cpu/loops/strided_loop.h"
#include "runtime/device/cpu/loops/sums.h"
#include "runtime/device/cpu/loops/widest.h"
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

constexpr double kElementNs = 0.1;
/// Elements of a row that are summed before they join the total, so that parts of a long row can be summed
/// apart.
constexpr std::int64_t kBlock = 65536;
/// Outputs that are computed side by side where neighbours in memory belong to different ones.
constexpr std::int64_t kColumns = 256;
/// Of `columns` those that a worker takes at once, four cache lines at least. No sum is cut, so that it makes
/// no difference to any.
std::int64_t columns_of_chunk(std::int64_t columns) {
  constexpr std::int64_t kLeast = 64;
  const std::int64_t workers = worker_count();
  if (workers == 1) return kColumns;
  return std::clamp((columns / workers + kLeast - 1) / kLeast * kLeast, kLeast, kColumns);
}

/// Each output is the sum of one stretch of memory, or of several.
template <class T>
SumType<Compute<T>> sum_run(std::int64_t count, const T* from, std::int64_t step) {
  using C = Compute<T>;
  if (step != 1) return sum_of<C>(count, [=](std::int64_t i) { return load(from[i * step]); });
  SumType<C> total = 0;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const T* const block = from + first;
    total += sum_of<C>(std::min(kBlock, count - first), [=](std::int64_t i) { return load(block[i]); });
  }
  return total;
}

/// The sum over all of `inside`, from `from` on.
template <class T>
SumType<Compute<T>> sum_all(const StridedLoop<1>& inside, const T* from) {
  if (inside.is_one_run()) return sum_run(inside.run_length(), from, inside.run_step());
  SumType<Compute<T>> total = 0;
  inside.run([&](const auto& start, std::int64_t count, const auto& stride) {
    total += sum_run(count, from + start[0], stride[0]);
  });
  return total;
}

/// One stretch's part of `columns` sums: row j of it is at from + j · step.
template <class T>
void add_rows(std::int64_t rows, const T* from, std::int64_t step, std::int64_t columns,
              SumType<Compute<T>>* totals) {
  using Sum = SumType<Compute<T>>;
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T *const a = from + row * step, *const b = a + step, *const c = b + step, *const d = c + step;
    for (std::int64_t i = 0; i < columns; ++i) {
      totals[i] += static_cast<Sum>((load(a[i]) + load(b[i])) + (load(c[i]) + load(d[i])));
    }
  }
  for (; row < rows; ++row) {
    const T* const a = from + row * step;
    for (std::int64_t i = 0; i < columns; ++i) totals[i] += static_cast<Sum>(load(a[i]));
  }
}

template <class T>
void store_sum(SumType<Compute<T>> total, double divisor, T& to) {
  if constexpr (!std::is_integral_v<T>) total /= divisor;
  to = cast<T>(total);
}

/// Of rows that are one stretch each.
template <class T>
void sum_rows(std::int64_t rows, std::int64_t count, const T* from, std::int64_t step, double divisor, T* to,
              std::int64_t to_step) {
  for (std::int64_t i = 0; i < rows; ++i)
    store_sum(sum_run(count, from + i * step, 1), divisor, to[i * to_step]);
}

/// Sums of `columns` neighbours over all of `inside`.
template <class T>
void sum_columns(const StridedLoop<1>& inside, std::int64_t columns, const T* from, double divisor, T* to,
                 std::int64_t to_step) {
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t here = std::min(kColumns, columns - first);
    SumType<Compute<T>> totals[kColumns] = {};
    inside.run([&](const auto& start, std::int64_t count, const auto& stride) {
      add_rows(count, from + first + start[0], stride[0], here, totals);
    });
    for (std::int64_t i = 0; i < here; ++i) store_sum(totals[i], divisor, to[(first + i) * to_step]);
  }
}

/// One long row: a sum for each block, then all of them in order.
template <class T>
SumType<Compute<T>> sum_blocks(std::int64_t count, const T* from) {
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<SumType<Compute<T>>> sums(static_cast<std::size_t>(blocks));
  for_chunks(blocks, kElementNs * kBlock, [&](std::int64_t block, int) {
    const std::int64_t first = block * kBlock;
    widest([&] {
      sums[static_cast<std::size_t>(block)] = sum_run(std::min(kBlock, count - first), from + first, 1);
    });
  });
  SumType<Compute<T>> total = 0;
  for (const auto sum : sums) total += sum;
  return total;
}

template <class T>
void sum(const Split& split, const View& in, double divisor, const View& out) {
  const StridedLoop<1> inside(split.reduced, {in.strides});
  const StridedLoop<2> outside(split.kept, {in.strides, out.strides});
  const bool stretches = inside.run_step() == 1;
  const std::int64_t each = split.reduced.product();
  outside.run([&](const auto& at, std::int64_t n, const auto& step) {
    const T* const from = in.as<const T>() + at[0];
    T* const to = out.as<T>() + at[1];
    if (!stretches && step[0] == 1 && n > 1) {
      return for_ranges(
          n, columns_of_chunk(n), kElementNs * static_cast<double>(each),
          [&](std::int64_t b, std::int64_t e) {
            widest([&] { sum_columns(inside, e - b, from + b, divisor, to + b * step[1], step[1]); });
          });
    }
    if (n == 1 && stretches && inside.is_one_run()) {
      return store_sum(sum_blocks(inside.run_length(), from), divisor, *to);
    }
    const bool rows = stretches && inside.is_one_run();
    for_ranges(
        n, rows_of_chunk(each), kElementNs * static_cast<double>(each), [&](std::int64_t b, std::int64_t e) {
          if (rows) {
            const std::int64_t count = inside.run_length(), down = step[0], apart = step[1];
            return widest(
                [=] { sum_rows(e - b, count, from + b * down, down, divisor, to + b * apart, apart); });
          }
          widest([&] {
            for (std::int64_t i = b; i < e; ++i) {
              store_sum(sum_all(inside, from + i * step[0]), divisor, to[i * step[1]]);
            }
          });
        });
  });
}

/// Takes one stretch into `columns` extremes that have a value each.
template <class T, class Op>
void take_rows(Op op, std::int64_t rows, const T* from, std::int64_t step, std::int64_t columns,
               Compute<T>* best) {
  for (std::int64_t row = 0; row < rows; ++row, from += step) {
    for (std::int64_t i = 0; i < columns; ++i) best[i] = op(best[i], load(from[i]));
  }
}

template <class T, class Op>
void extreme_columns(Op op, const StridedLoop<1>& inside, std::int64_t columns, const T* from, T* to,
                     std::int64_t to_step) {
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t here = std::min(kColumns, columns - first);
    Compute<T> best[kColumns];
    for (std::int64_t i = 0; i < here; ++i) best[i] = load(from[first + i]);
    inside.run([&](const auto& start, std::int64_t count, const auto& stride) {
      take_rows(op, count, from + first + start[0], stride[0], here, best);
    });
    for (std::int64_t i = 0; i < here; ++i) to[(first + i) * to_step] = cast<T>(best[i]);
  }
}

template <class T, class Op>
Compute<T> extreme_run(Op op, std::int64_t count, const T* from, std::int64_t step) {
  using C = Compute<T>;
  if constexpr (std::is_same_v<T, float>) {
    constexpr bool kLargest = std::is_same_v<Op, functor::Max>;
    float best = 0;
    if (step == 1 && (kLargest ? largest_of(count, from, best) : least_of(count, from, best))) return best;
  }
  if (step == 1) return extreme_of<C>(count, op, [=](std::int64_t i) { return load(from[i]); });
  return extreme_of<C>(count, op, [=](std::int64_t i) { return load(from[i * step]); });
}

template <class T, class Op>
Compute<T> extreme_all(Op op, const StridedLoop<1>& inside, const T* from) {
  if (inside.is_one_run()) return extreme_run(op, inside.run_length(), from, inside.run_step());
  Compute<T> best = load(from[0]);
  inside.run([&](const auto& start, std::int64_t count, const auto& stride) {
    best = op(best, extreme_run(op, count, from + start[0], stride[0]));
  });
  return best;
}

template <class T, class Op>
void extreme(Op op, const Split& split, const View& in, const View& out) {
  const StridedLoop<1> inside(split.reduced, {in.strides});
  const StridedLoop<2> outside(split.kept, {in.strides, out.strides});
  const bool stretches = inside.run_step() == 1;
  const std::int64_t each = split.reduced.product();
  outside.run([&](const auto& at, std::int64_t n, const auto& step) {
    const T* const from = in.as<const T>() + at[0];
    T* const to = out.as<T>() + at[1];
    if (!stretches && step[0] == 1 && n > 1) {
      return for_ranges(
          n, columns_of_chunk(n), kElementNs * static_cast<double>(each),
          [&](std::int64_t b, std::int64_t e) {
            widest([&] { extreme_columns(op, inside, e - b, from + b, to + b * step[1], step[1]); });
          });
    }
    for_ranges(n, rows_of_chunk(each), kElementNs * static_cast<double>(each),
               [&](std::int64_t b, std::int64_t e) {
                 widest([&] {
                   for (std::int64_t i = b; i < e; ++i) {
                     to[i * step[1]] = cast<T>(extreme_all(op, inside, from + i * step[0]));
                   }
                 });
               });
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
