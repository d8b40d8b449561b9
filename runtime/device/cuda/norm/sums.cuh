// Two sums over the pixels of each channel, slice by slice. A thread adds up short stretches in the precision
// of the channels (float: double is slow on many GPUs) and folds them into doubles; who is added to whom
// depends on shapes alone.
#pragma once

#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/norm/channels.cuh"

namespace dtrain::cuda::norm {

constexpr int kStretch = 32;      // pixels that a thread adds up before it folds
constexpr int kMostColumns = 32;  // threads side by side
constexpr int kAhead = 4;         // pixels whose loads are on their way at a time, where one array is read

/// How a pass over an activation is cut: a block takes `columns` threads' channels of one slice of the
/// pixels, its kThreads / columns rows every so manieth pixel.
struct Cut {
  Cut(const Context& context, const View& input, int width)
      : channels(input.shape[1]), pixels(input.numel() / input.shape[1]) {
    const std::int64_t packs = channels / width;
    while (columns < kMostColumns && columns < packs) columns *= 2;
    groups = (packs + columns - 1) / columns;
    const std::int64_t wanted = 4 * static_cast<std::int64_t>(context.multiprocessors) / groups;
    const std::int64_t least = 8 * (kThreads / columns);
    slices = std::clamp<std::int64_t>(wanted, 1, std::min<std::int64_t>(pixels / least + 1, 65535));
    by_slices = Divisor(slices);
    by_rows = Divisor(kThreads / columns);
  }
  std::size_t sum_bytes() const { return static_cast<std::size_t>(slices * 2 * channels) * sizeof(double); }
  dim3 grid() const { return dim3(static_cast<unsigned>(groups), static_cast<unsigned>(slices)); }
  /// Where a slice begins, and behind the last the end.
  __host__ __device__ std::int64_t begin_of(std::int64_t slice) const { return by_slices(pixels * slice); }
  /// How many of a slice's `length` pixels row `row` takes.
  __device__ double pixels_of_row(std::int64_t length, int row) const {
    return static_cast<double>(row < length ? by_rows(length - row - 1) + 1 : 0);
  }

  std::int64_t channels, pixels, groups = 1, slices = 1;
  int columns = 1;
  Divisor by_slices, by_rows;
};

/// A channel's mean and the sum of squared differences from it (Chan, Golub and LeVeque, 1979). A stretch is
/// summed around the mean of all before it, so that nothing is far from what it is subtracted from.
template <class T, int V>
struct Moments {
  using C = Channel<T>;
  using Index = typename Pixels<const T, V>::Index;

  __device__ void gather(Index begin, Index end, Index step, Index c, double (&mean)[V],
                         double (&squares)[V]) const {
    C pivot[V] = {};
    double count = 0;
    for (Index p = begin; p < end; p += kStretch * step) {
      C sum[V] = {}, square[V] = {};
      int n = 0;
      if (count == 0) start(input.load(p, c), pivot);
      for_each_ahead<kAhead>(
          p, min(end, p + kStretch * step), step, [&](Index at) { return input.load(at, c); },
          [&](const Pack<T, V>& pack, Index) {
            ++n;
#pragma unroll
            for (int v = 0; v < V; ++v) {
              const C x = static_cast<C>(load(pack.at[v])) - pivot[v];
              sum[v] += x;
              square[v] += x * x;
            }
          });
      const double total = count + n, share = 1.0 / total;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        // The mean so far is not exactly the pivot.
        const double off = count == 0 ? 0 : mean[v] - static_cast<double>(pivot[v]);
        const double all = static_cast<double>(sum[v]) + count * off;
        mean[v] = static_cast<double>(pivot[v]) + all * share;
        squares[v] =
            max(squares[v] + count * off * off + static_cast<double>(square[v]) - all * all * share, 0.0);
        if (isfinite(mean[v])) pivot[v] = static_cast<C>(mean[v]);
      }
      count = total;
    }
  }
  /// (count, mean, squares) takes in another part.
  __device__ static void join(double& count, double& mean, double& squares, double other, double other_mean,
                              double other_squares) {
    if (other == 0) return;
    const double total = count + other, apart = other_mean - mean;
    mean = count == 0 ? other_mean : mean + apart * (other / total);
    squares += other_squares + apart * apart * (count / total) * other;
    count = total;
  }

  Pixels<const T, V> input;

 private:
  __device__ static void start(const Pack<T, V>& first, C (&pivot)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C x = static_cast<C>(load(first.at[v]));
      pivot[v] = isfinite(x) ? x : C(0);
    }
  }
};

/// The sum of the gradient that comes through the activation, and that of its products with input - mean.
/// Also writes that gradient, where somebody wants it.
template <class T, int V>
struct GradientSums {
  using C = Channel<T>;
  using Index = typename Pixels<const T, V>::Index;
  // Two or three arrays are read. The sums of eight channels leave no registers for a second pixel.
  static constexpr int kPixelsAhead = V > 1 && V < 8 ? 2 : 1;

  __device__ void gather(Index begin, Index end, Index step, Index c, double (&sum)[V],
                         double (&products)[V]) const {
    C mean[V], scale[V], shift[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      mean[v] = at.mean[c + v];
      at.affine(c + v, mean[v], at.inv_std[c + v], scale[v], shift[v]);
    }
    struct Read {
      Pack<T, V> x, grad, written;
    };
    for (Index p = begin; p < end; p += kStretch * step) {
      C near[V] = {}, product[V] = {};
      for_each_ahead<kPixelsAhead>(
          p, min(end, p + kStretch * step), step,
          [&](Index pixel) {
            return Read{input.load(pixel, c), grad.load(pixel, c), gate.load_written(pixel, c)};
          },
          [&](const Read& read, Index pixel) {
            const auto through = gate.pass(read.grad, read.x, read.written, scale, shift);
            if (residual) residual.store(pixel, c, through);
#pragma unroll
            for (int v = 0; v < V; ++v) {
              const C dy = static_cast<C>(load(through.at[v]));
              near[v] += dy;
              product[v] += dy * (static_cast<C>(load(read.x.at[v])) - mean[v]);
            }
          });
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[v] += static_cast<double>(near[v]);
        products[v] += static_cast<double>(product[v]);
      }
    }
  }
  __device__ static void join(double& count, double& sum, double& products, double other, double other_sum,
                              double other_products) {
    count += other;
    sum += other_sum;
    products += other_products;
  }

  Pixels<const T, V> grad, input;
  Gate<T, V> gate;
  Pixels<T, V> residual;
  ChannelArrays<C> at;
};

/// The two sums of every slice and channel: sums[(slice · 2 + which) · channels + c].
template <int V, class Terms>
__global__ void sums_kernel(Cut cut, Terms terms, double* sums) {
  __shared__ double first[V][kThreads], second[V][kThreads];
  using Index = typename Terms::Index;
  const int column = static_cast<int>(threadIdx.x) % cut.columns,
            row = static_cast<int>(threadIdx.x) / cut.columns;
  const int rows = kThreads / cut.columns;
  const std::int64_t slice = blockIdx.y, pack = static_cast<std::int64_t>(blockIdx.x) * cut.columns + column;
  const std::int64_t begin = cut.begin_of(slice), end = cut.begin_of(slice + 1);
  double a[V] = {}, b[V] = {};
  if (pack * V < cut.channels) {
    terms.gather(static_cast<Index>(begin + row), static_cast<Index>(end), static_cast<Index>(rows),
                 static_cast<Index>(pack * V), a, b);
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    first[v][threadIdx.x] = a[v];
    second[v][threadIdx.x] = b[v];
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < cut.columns * V; at += kThreads) {
    const int v = at % V, from = at / V;
    const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * cut.columns + from) * V + v;
    if (c >= cut.channels) continue;
    double count = 0, x = 0, y = 0;
    for (int r = 0; r < rows; ++r) {
      const int thread = r * cut.columns + from;
      Terms::join(count, x, y, cut.pixels_of_row(end - begin, r), first[v][thread], second[v][thread]);
    }
    sums[slice * 2 * cut.channels + c] = x;
    sums[(slice * 2 + 1) * cut.channels + c] = y;
  }
}

constexpr int kFinishColumns = 32, kFinishRows = kThreads / kFinishColumns;

/// Joins the slices of each channel and hands the result to `finish(c, count, first, second)`.
template <class Terms, class Finish>
__global__ void finish_kernel(Cut cut, const double* sums, Finish finish) {
  __shared__ double counts[kFinishRows][kFinishColumns], first[kFinishRows][kFinishColumns],
      second[kFinishRows][kFinishColumns];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kFinishColumns + threadIdx.x;
  double count = 0, a = 0, b = 0;
  if (c < cut.channels) {
    for (std::int64_t slice = threadIdx.y; slice < cut.slices; slice += kFinishRows) {
      Terms::join(count, a, b, static_cast<double>(cut.begin_of(slice + 1) - cut.begin_of(slice)),
                  sums[slice * 2 * cut.channels + c], sums[(slice * 2 + 1) * cut.channels + c]);
    }
  }
  counts[threadIdx.y][threadIdx.x] = count;
  first[threadIdx.y][threadIdx.x] = a;
  second[threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cut.channels) return;
  for (int row = 1; row < kFinishRows; ++row) {
    Terms::join(count, a, b, counts[row][threadIdx.x], first[row][threadIdx.x], second[row][threadIdx.x]);
  }
  finish(c, count, a, b);
}

/// Sums `terms` over all pixels and hands each channel's to `finish`, in two launches.
template <int V, class Terms, class Finish>
void sum_up(const Context& context, std::string_view operation, const View& input, const Terms& terms,
            const Finish& finish) {
  const Cut cut(context, input, V);
  const Scratch memory(context.memory, cut.sum_bytes());
  auto* const sums = static_cast<double*>(memory.data());
  DTRAIN_LAUNCH(operation, context.stream, cut.grid(), kThreads, (sums_kernel<V, Terms>), cut, terms, sums);
  const auto blocks = static_cast<unsigned>((cut.channels + kFinishColumns - 1) / kFinishColumns);
  DTRAIN_LAUNCH(operation, context.stream, blocks, dim3(kFinishColumns, kFinishRows),
                (finish_kernel<Terms, Finish>), cut, sums, finish);
}

}  // namespace dtrain::cuda::norm
