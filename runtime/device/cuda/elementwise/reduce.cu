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

/// `op` over elements first, first + step, … below `end` of the output whose elements begin at `in`.
template <class T, class Op>
__device__ typename Op::A reduce_some(const Reduced& what, Op op, const T* in, std::int64_t first,
                                      std::int64_t end, std::int64_t step) {
  typename Op::A total = op.identity();
  const auto take = [&](const T& value, std::int64_t) { total = op(total, load(value)); };
  if (what.reduced.rank <= 1) {  // evenly spaced
    const std::int64_t stride = what.reduced.stride[0][0];
    for_each_ahead<kAhead>(
        first, end, step, [&](std::int64_t i) { return in[i * stride]; }, take);
    return total;
  }
  const auto element = [&](std::int64_t i) {
    std::int64_t at[1];
    what.reduced.locate(i, at);
    return in[at[0]];
  };
  for_each_ahead<kAhead>(first, end, step, element, take);
  return total;
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
    A total = reduce_some(what, op, in + at[0], slice_begin(what, slice) + threadIdx.x,
                          slice_begin(what, slice + 1), kThreads);
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

/// A column of threads an output; good where neighbouring outputs lie together.
template <class T, class Op>
__global__ void column_kernel(Reduced what, Op op, const T* in, T* out, typename Op::A* partial) {
  using A = typename Op::A;
  __shared__ A totals[kColumnRows][kColumns];
  const std::int64_t slice = blockIdx.y;
  for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * kColumns; base < what.kept.count;
       base += static_cast<std::int64_t>(gridDim.x) * kColumns) {
    const std::int64_t o = base + threadIdx.x;
    const bool inside_out = o < what.kept.count;
    std::int64_t at[2] = {0, 0};
    if (inside_out) what.kept.locate(o, at);
    const std::int64_t end = inside_out ? slice_begin(what, slice + 1) : 0;
    A total = reduce_some(what, op, in + at[0], slice_begin(what, slice) + threadIdx.y, end, kColumnRows);
    totals[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && inside_out) {
      for (int row = 1; row < kColumnRows; ++row) total = op(total, totals[row][threadIdx.x]);
      if (partial != nullptr) {
        partial[slice * what.kept.count + o] = total;
      } else {
        out[at[1]] = op.finish(total);
      }
    }
    __syncthreads();
  }
}

template <class T, class Op>
__global__ void finish_kernel(Layout<2> kept, std::int64_t slices, Op op, const typename Op::A* partial,
                              T* out) {
  for (std::int64_t o = first_item(); o < kept.count; o += item_step()) {
    typename Op::A total = op.identity();
    for (std::int64_t s = 0; s < slices; ++s) total = op(total, partial[s * kept.count + o]);
    std::int64_t at[2];
    kept.locate(o, at);
    out[at[1]] = op.finish(total);
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

template <class T, class Op>
void run(const Context& context, Reduced what, Op op, const View& in, const View& out) {
  const bool columns = prefers_columns(what);
  const std::int64_t groups = columns ? (what.kept.count + kColumns - 1) / kColumns : what.kept.count;
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
  if (columns) {
    DTRAIN_LAUNCH("reduce", context.stream, grid, dim3(kColumns, kColumnRows), (column_kernel<T, Op>), what,
                  op, in.as<const T>(), out.as<T>(), partial);
  } else {
    DTRAIN_LAUNCH("reduce", context.stream, grid, kThreads, (row_kernel<T, Op>), what, op, in.as<const T>(),
                  out.as<T>(), partial);
  }
  if (!sliced) return;
  DTRAIN_LAUNCH("reduce", context.stream, blocks_for(context, what.kept.count), kThreads,
                (finish_kernel<T, Op>), what.kept, what.slices, op, partial, out.as<T>());
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
