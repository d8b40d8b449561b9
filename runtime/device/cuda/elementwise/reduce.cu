// Reductions over any dimensions. Sums are accumulated with a double's digits and in an order that depends on
// shapes alone: slices of a long sum go to different blocks, and a second kernel adds the slices up in their
// order.
#include <cub/block/block_reduce.cuh>

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/float_pair.cuh"
#include "runtime/device/cuda/loads.cuh"
#include "runtime/device/functors.h"

namespace dtrain::cuda {
namespace {

constexpr int kColumns = 32, kColumnRows = 8;
constexpr int kAhead = 8;               // loads of a thread that are on their way
constexpr std::int64_t kShortRow = 64;  // elements below which a block for each output does not pay

template <class T>
struct SumOf {
  using A = SumType<Compute<T>>;
  double divisor;
  __host__ __device__ A identity() const { return A{}; }
  template <class B>  // one more element, or another sum
  __device__ A operator()(A a, B b) const {
    if constexpr (std::is_integral_v<T>) {
      return a + b;
    } else {
      return plus(a, b);
    }
  }
  __device__ T finish(A total) const {
    if constexpr (std::is_integral_v<T>) {
      return total;
    } else {
      return cast<T>(widened(total) / divisor);
    }
  }
};

template <class T, class Functor, bool kLargest>
struct ExtremeOf {
  using A = Compute<T>;
  A start;  // the worst value there is
  __host__ __device__ A identity() const { return start; }
  __device__ A operator()(A a, A b) const { return Functor{}(a, b); }
  __device__ T finish(A best) const { return cast<T>(best); }
};

/// What a kernel reduces: `kept` places the outputs (in `in` and in `out`), `reduced` the elements of each.
/// Slice s of S takes elements [s·n/S, (s+1)·n/S).
struct Reduced {
  Layout<2> kept;
  Layout<1> reduced;
  std::int64_t slices = 1;
  Divisor by_slices;
};

__device__ inline std::int64_t slice_begin(const Reduced& what, std::int64_t slice) {
  return what.by_slices(what.reduced.count * slice);
}

/// Calls `take` for elements first, first + step, … below `end` of the output whose elements begin at `in`,
/// or of V neighbouring ones.
template <int V, class T, class Take>
__device__ __forceinline__ void for_each_element(const Reduced& what, const T* in, std::int64_t first,
                                                 std::int64_t end, std::int64_t step, Take take) {
  const auto pack_at = [&](std::int64_t offset) { return *reinterpret_cast<const Pack<T, V>*>(in + offset); };
  if (what.reduced.rank <= 1) {  // evenly spaced
    const std::int64_t stride = what.reduced.stride[0][0];
    return for_each_ahead<kAhead>(
        first, end, step, [&](std::int64_t i) { return pack_at(i * stride); }, take);
  }
  const auto element = [&](std::int64_t i) {
    std::int64_t at[1];
    what.reduced.locate(i, at);
    return pack_at(at[0]);
  };
  for_each_ahead<kAhead>(first, end, step, element, take);
}

/// One block an output and slice; good where the reduced elements lie together.
template <class T, class Op>
__global__ void row_kernel(Reduced what, Op op, const T* in, T* out, typename Op::A* partial) {
  using A = typename Op::A;
  using BlockReduce = cub::BlockReduce<A, kThreads>;
  __shared__ typename BlockReduce::TempStorage storage;
  const std::int64_t slice = blockIdx.y;
  for (std::int64_t o = blockIdx.x; o < what.kept.count; o += gridDim.x) {
    std::int64_t at[2];
    what.kept.locate(o, at);
    A total = op.identity();
    for_each_element<1>(what, in + at[0], slice_begin(what, slice) + threadIdx.x,
                        slice_begin(what, slice + 1), kThreads,
                        [&](const Pack<T, 1>& one, std::int64_t) { total = op(total, load(one.at[0])); });
    total = BlockReduce(storage).Reduce(total, op);
    if (threadIdx.x == 0) {
      if (partial != nullptr) {
        partial[slice * what.kept.count + o] = total;
      } else {
        out[at[1]] = op.finish(total);
      }
    }
    __syncthreads();
  }
}

/// A thread's total with those of the threads below it in its column, in their order; for the first of them.
template <int V, class Op, class A>
__device__ void join_column(Op op, A (&total)[V]) {
  __shared__ A totals[kColumnRows][kColumns * V];
  __syncthreads();  // what was here is read
#pragma unroll
  for (int v = 0; v < V; ++v) totals[threadIdx.y][threadIdx.x * V + v] = total[v];
  __syncthreads();
  for (int row = 1; threadIdx.y == 0 && row < kColumnRows; ++row) {
#pragma unroll
    for (int v = 0; v < V; ++v) total[v] = op(total[v], totals[row][threadIdx.x * V + v]);
  }
}

/// A column of threads for each V neighbouring outputs; good where those lie together.
template <class T, class Op, int V>
__global__ void column_kernel(Reduced what, Op op, const T* in, T* out, typename Op::A* partial) {
  using A = typename Op::A;
  const std::int64_t slice = blockIdx.y, wide = kColumns * V;
  for (std::int64_t base = blockIdx.x * wide; base < what.kept.count; base += gridDim.x * wide) {
    const std::int64_t o = base + static_cast<std::int64_t>(threadIdx.x) * V;
    const bool inside_out = o < what.kept.count;
    std::int64_t at[2] = {0, 0};
    if (inside_out) what.kept.locate(o, at);
    A total[V];
#pragma unroll
    for (int v = 0; v < V; ++v) total[v] = op.identity();
    const std::int64_t end = inside_out ? slice_begin(what, slice + 1) : 0;
    for_each_element<V>(what, in + at[0], slice_begin(what, slice) + threadIdx.y, end, kColumnRows,
                        [&](const Pack<T, V>& pack, std::int64_t) {
#pragma unroll
                          for (int v = 0; v < V; ++v) total[v] = op(total[v], load(pack.at[v]));
                        });
    join_column<V>(op, total);
    if (threadIdx.y != 0 || !inside_out) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (partial != nullptr) {
        partial[slice * what.kept.count + o + v] = total[v];
      } else {
        what.kept.locate(o + v, at);
        out[at[1]] = op.finish(total[v]);
      }
    }
  }
}

/// A column of threads an output, which is made of its slices.
template <class T, class Op>
__global__ void finish_kernel(Layout<2> kept, std::int64_t slices, Op op, const typename Op::A* partial,
                              T* out) {
  using A = typename Op::A;
  const std::int64_t wide = kColumns;
  for (std::int64_t base = blockIdx.x * wide; base < kept.count; base += gridDim.x * wide) {
    const std::int64_t o = base + threadIdx.x;
    const bool inside_out = o < kept.count;
    A total[1] = {op.identity()};
    for_each_ahead<kAhead>(
        static_cast<std::int64_t>(threadIdx.y), inside_out ? slices : 0,
        static_cast<std::int64_t>(kColumnRows), [&](std::int64_t s) { return partial[s * kept.count + o]; },
        [&](const A& slice, std::int64_t) { total[0] = op(total[0], slice); });
    join_column<1>(op, total);
    if (threadIdx.y != 0 || !inside_out) continue;
    std::int64_t at[2];
    kept.locate(o, at);
    out[at[1]] = op.finish(total[0]);
  }
}

Reduced split_dims(const View& in, const View& out) {
  Dims kept = in.shape, reduced = in.shape;
  for (int i = 0; i < in.rank(); ++i) {
    (out.shape[i] == 1 ? kept : reduced)[i] = 1;
  }
  return {make_layout<2>(kept, {in.strides, out.strides}), make_layout<1>(reduced, {in.strides}), 1, {}};
}

bool prefers_columns(const Reduced& what) {
  if (what.reduced.count < kShortRow) return true;
  const int last = what.kept.rank - 1, last_reduced = what.reduced.rank - 1;
  return last >= 0 && what.kept.stride[last][0] == 1 && last_reduced >= 0 &&
         what.reduced.stride[last_reduced][0] != 1 && what.kept.count >= 8;
}

/// Outputs that a thread of column_kernel takes: 8 bytes of elements.
template <class T>
constexpr int kOutputs = sizeof(T) < 8 ? 8 / static_cast<int>(sizeof(T)) : 1;

/// Whether each V outputs from a multiple of V on have their elements side by side, and aligned.
template <int V, class T>
bool in_packs(const Reduced& what, const T* in) {
  const int last = what.kept.rank - 1;
  if (last < 0 || what.kept.stride[last][0] != 1 || what.kept.extent[last] % V != 0) return false;
  for (int d = 0; d < last; ++d) {
    if (what.kept.stride[d][0] % V != 0) return false;
  }
  for (int d = 0; d < what.reduced.rank; ++d) {
    if (what.reduced.stride[d][0] % V != 0) return false;
  }
  return is_aligned(in, V * sizeof(T));
}

template <class T, class Op>
void run(const Context& context, Reduced what, Op op, const View& in, const View& out) {
  const bool columns = prefers_columns(what),
             packs = columns && in_packs<kOutputs<T>>(what, in.as<const T>());
  const std::int64_t wide = kColumns * (packs ? kOutputs<T> : 1);
  const std::int64_t groups = columns ? (what.kept.count + wide - 1) / wide : what.kept.count;
  const std::int64_t wanted = 4 * static_cast<std::int64_t>(context.multiprocessors);
  const std::int64_t least_work = columns ? 64 : 2048;  // elements a slice
  what.slices = std::clamp<std::int64_t>(wanted / std::max<std::int64_t>(groups, 1), 1,
                                         std::min<std::int64_t>(what.reduced.count / least_work + 1, 65535));
  what.by_slices = Divisor(what.slices);
  const bool sliced = what.slices > 1;
  const Scratch scratch(
      context.memory,
      sliced ? static_cast<std::size_t>(what.slices * what.kept.count) * sizeof(typename Op::A) : 0);
  auto* const partial = static_cast<typename Op::A*>(scratch.data());
  const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(groups, INT32_MAX)),
                  static_cast<unsigned>(what.slices));
  const auto launch_columns = [&](auto kernel) {
    DTRAIN_LAUNCH("reduce", context.stream, grid, dim3(kColumns, kColumnRows), kernel, what, op,
                  in.as<const T>(), out.as<T>(), partial);
  };
  if (packs) {
    launch_columns(column_kernel<T, Op, kOutputs<T>>);
  } else if (columns) {
    launch_columns(column_kernel<T, Op, 1>);
  } else {
    DTRAIN_LAUNCH("reduce", context.stream, grid, kThreads, (row_kernel<T, Op>), what, op, in.as<const T>(),
                  out.as<T>(), partial);
  }
  if (!sliced) return;
  DTRAIN_LAUNCH("reduce", context.stream, blocks_for(context, what.kept.count, kColumns),
                dim3(kColumns, kColumnRows), (finish_kernel<T, Op>), what.kept, what.slices, op, partial,
                out.as<T>());
}

/// The start of a maximum or minimum: nothing is worse.
template <class A>
A worst(bool largest) {
  if constexpr (std::is_integral_v<A>) {
    return largest ? INT64_MIN : INT64_MAX;
  } else {
    return largest ? -static_cast<A>(INFINITY) : static_cast<A>(INFINITY);
  }
}

}  // namespace

void CudaKernels::reduce(Reduction op, const View& in, const View& out) {
  const Reduced what = split_dims(in, out);
  if (out.numel() == 0) return;
  if (in.numel() == 0) return fill(out, op == Reduction::mean ? NAN : 0.0);
  const double divisor = op == Reduction::mean ? static_cast<double>(what.reduced.count) : 1.0;
  dispatch_arithmetic("reduce", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    using A = Compute<T>;
    if (op == Reduction::max)
      return run<T>(context_, what, ExtremeOf<T, functor::Max, true>{worst<A>(true)}, in, out);
    if (op == Reduction::min)
      return run<T>(context_, what, ExtremeOf<T, functor::Min, false>{worst<A>(false)}, in, out);
    run<T>(context_, what, SumOf<T>{divisor}, in, out);
  });
}

}  // namespace dtrain::cuda
