// Kernels that work on rows: argmax, gathers, and the softmax losses. One warp a row, or a block where it is
// long; sums of exponentials are accumulated with a double's digits, as on the CPU.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/float_pair.cuh"
#include "runtime/device/cuda/loads.cuh"

namespace dtrain::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline std::int64_t first_row() { return first_item() / kWarp; }
__device__ inline std::int64_t row_step() { return item_step() / kWarp; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x % kWarp); }

unsigned blocks_for_rows(const Context& context, std::int64_t rows) {
  return blocks_for(context, rows * kWarp);
}

template <class T>
__device__ T warp_max(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, step);
    if (other > value || other != other) value = other;
  }
  return value;
}

__device__ inline double warp_sum(double value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
// TwoSum of a and b is that of b and a: all lanes end with the same bits.
__device__ inline FloatPair warp_sum(FloatPair value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const FloatPair other = {__shfl_xor_sync(kAllLanes, value.high, step),
                             __shfl_xor_sync(kAllLanes, value.low, step)};
    value = plus(value, other);
  }
  return value;
}

/// x - largest - log_sum, rounded once: the sum of a large maximum and a logarithm has no digits left for the
/// logarithm.
__device__ inline double log_probability(double x, double largest, double log_sum) {
  return (x - largest) - log_sum;
}
__device__ inline float log_probability(float x, float largest, FloatPair log_sum) {
  return rounded(plus(exact_sum(x, -largest), FloatPair{-log_sum.high, -log_sum.low}));
}
__device__ inline double logarithm(double sum) { return log(sum); }
__device__ inline FloatPair logarithm(FloatPair sum) {
  const double exact = log(widened(sum));
  const auto high = static_cast<float>(exact);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}

/// Whether (a, at i) comes before (b, at j) as a maximum: NaN first, then the larger, then the earlier.
template <class A>
__device__ bool beats(A a, std::int64_t i, A b, std::int64_t j) {
  if (j < 0) return i >= 0;
  if (i < 0) return false;
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a != b) return a > b;
  return i < j;
}

template <class T>
__global__ void argmax_kernel(Layout<2> rows, std::int64_t columns, std::int64_t column_step, const T* in,
                              std::int64_t* out) {
  using A = Compute<T>;
  for (std::int64_t r = first_row(); r < rows.count; r += row_step()) {
    std::int64_t at[2];
    rows.locate(r, at);
    A best = A(0);
    std::int64_t place = -1;
    for (std::int64_t c = lane(); c < columns; c += kWarp) {
      const A value = load(in[at[0] + c * column_step]);
      if (beats(value, c, best, place)) best = value, place = c;
    }
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const A other = __shfl_xor_sync(kAllLanes, best, step);
      const std::int64_t there = __shfl_xor_sync(kAllLanes, static_cast<long long>(place), step);
      if (beats(other, there, best, place)) best = other, place = there;
    }
    if (lane() == 0) out[at[1]] = place;
  }
}

/// Row `row` of `in` and of `out`; `row` holds the strides of out and in.
template <class T>
__global__ void select_kernel(std::int64_t count, Layout<2> row, Divisor by_row, const std::int64_t* index,
                              std::int64_t index_step, std::int64_t limit, std::int64_t out_step,
                              std::int64_t in_step, const T* in, T* out, FaultRecord* faults) {
  for (std::int64_t e = first_item(); e < count * row.count; e += item_step()) {
    const std::int64_t i = by_row(e);
    const std::int64_t chosen = index[i * index_step];
    if (chosen < 0 || chosen >= limit) {
      note_fault(faults, FaultKind::index_select, i, chosen, limit);
      continue;
    }
    std::int64_t at[2];
    row.locate(e - i * row.count, at);
    out[i * out_step + at[0]] = in[chosen * in_step + at[1]];
  }
}

/// A block takes an index that none before it equals, and all its rows in their order: each is added to what
/// the row of `out` has been rounded to. Indices are compared with each other, count² / 2 times: for 8,192
/// words of 768 features all of it takes an H100 0.2 ms.
template <class T>
__global__ void add_kernel(std::int64_t count, Layout<2> row, const std::int64_t* index,
                           std::int64_t index_step, std::int64_t limit, std::int64_t out_step,
                           std::int64_t in_step, const T* in, T* out, FaultRecord* faults) {
  constexpr int kPlaces = 4;  // of the row, a thread
  __shared__ unsigned equal[kThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const std::int64_t chosen = index[i * index_step];
    if (chosen < 0 || chosen >= limit) {
      if (thread == 0) note_fault(faults, FaultKind::index_add, i, chosen, limit);
      continue;
    }
    bool is_behind = false;
    for (std::int64_t j = thread; j < i && !is_behind; j += kThreads)
      is_behind = index[j * index_step] == chosen;
    if (__syncthreads_or(is_behind)) continue;
    for (std::int64_t first = 0; first < row.count; first += kPlaces * kThreads) {
      std::int64_t at[kPlaces][2] = {};
      T sums[kPlaces] = {};
      const auto for_places = [&](auto use) {
#pragma unroll
        for (int p = 0; p < kPlaces; ++p) {
          if (first + p * kThreads + thread < row.count) use(sums[p], at[p]);
        }
      };
#pragma unroll
      for (int p = 0; p < kPlaces; ++p) {
        const std::int64_t place = first + p * kThreads + thread;
        if (place < row.count) row.locate(place, at[p]);
      }
      for_places([&](T& sum, const std::int64_t(&place)[2]) { sum = out[chosen * out_step + place[0]]; });
      for (std::int64_t base = i; base < count; base += kThreads) {
        const std::int64_t j = base + thread;
        const unsigned found = __ballot_sync(kAllLanes, j < count && index[j * index_step] == chosen);
        if (lane() == 0) equal[thread / kWarp] = found;
        __syncthreads();
        for (int warp = 0; warp < kThreads / kWarp; ++warp) {
          for (unsigned left = equal[warp]; left != 0; left &= left - 1) {
            const T* const from = in + (base + warp * kWarp + __ffs(static_cast<int>(left)) - 1) * in_step;
            for_places([&](T& sum, const std::int64_t(&place)[2]) {
              sum = cast<T>(load(sum) + load(from[place[1]]));
            });
          }
        }
        __syncthreads();  // `equal` is written again
      }
      for_places([&](T& sum, const std::int64_t(&place)[2]) { out[chosen * out_step + place[0]] = sum; });
    }
  }
}

/// A matrix by its strides.
template <class T>
struct Matrix {
  explicit Matrix(const View& view)
      : data(static_cast<T*>(view.data)), row_step(view.strides[0]), column_step(view.strides[1]) {}
  __device__ T& operator()(std::int64_t r, std::int64_t c) const {
    return data[r * row_step + c * column_step];
  }
  T* data;
  std::int64_t row_step, column_step;
};

/// Whether a row counts, as kernels take it.
struct Ignored {
  Ignored(IgnoredTarget target) : any(target.has_value()), label(target.value_or(0)) {}
  __device__ bool operator()(std::int64_t target) const { return any && target == label; }
  bool any;
  std::int64_t label;
};

/// The largest of some numbers x, and the sum of exp(x - largest) over them (Milakov and Gimelshein, "Online
/// normalizer calculation for softmax", 2018). The largest itself adds exactly 1, so that what the others add
/// to it keeps its digits.
template <class C>
struct SumOfExponentials {
  using Sum = SumType<C>;
  C largest = -static_cast<C>(INFINITY);
  Sum sum{};

  __device__ void take(C x) {
    if (x > largest || x != x) {
      sum = scaled(sum, exp(largest - x));
      largest = x;
    }
    if (x != -static_cast<C>(INFINITY)) sum = plus(sum, exp(x - largest));  // of NaN and infinity NaN
  }
  /// All lanes' together, for all lanes. NaN where there is nothing but -infinity.
  __device__ SumOfExponentials of_warp() const {
    const C most = warp_max(largest);
    return {most, warp_sum(scaled(sum, exp(largest - most)))};
  }
  /// All threads' of a block of kWarps warps together, for all threads.
  template <int kWarps>
  __device__ SumOfExponentials of_block() const {
    if constexpr (kWarps == 1) {
      return of_warp();
    } else {
      __shared__ C largest_of[kWarps];
      __shared__ Sum sum_of[kWarps];
      const SumOfExponentials near = of_warp();
      __syncthreads();  // what was here is read
      if (lane() == 0) largest_of[threadIdx.x / kWarp] = near.largest, sum_of[threadIdx.x / kWarp] = near.sum;
      __syncthreads();
      SumOfExponentials one;
      if (lane() < kWarps) one.largest = largest_of[lane()], one.sum = sum_of[lane()];
      return one.of_warp();
    }
  }

 private:
  static __device__ double scaled(double sum, double factor) { return sum * factor; }
  static __device__ FloatPair scaled(FloatPair sum, float factor) {
    return {sum.high * factor, sum.low * factor};
  }
};

constexpr int kKept = 8;  // elements of a row that a lane keeps: of up to 256 columns a row is read once
constexpr int kWarpsOfLongRow = 16, kLongRow = 2048;

/// kWarps warps take a row: one of several in a block, or a whole block. With `target`, also the loss of each
/// row.
template <class T, int kWarps>
__global__ void log_softmax_kernel(std::int64_t rows, std::int64_t columns, Matrix<const T> in, Matrix<T> out,
                                   const std::int64_t* target, std::int64_t target_step, Ignored ignored,
                                   T* losses, std::int64_t loss_step, FaultRecord* faults) {
  using C = Compute<T>;
  const std::int64_t first = kWarps == 1 ? first_row() : blockIdx.x,
                     step = kWarps == 1 ? row_step() : gridDim.x;
  const int place = kWarps == 1 ? lane() : static_cast<int>(threadIdx.x);
  for (std::int64_t r = first; r < rows; r += step) {
    const auto row =
        read_row<kKept>(place, columns, kWarps * kWarp, [&](std::int64_t c) { return in(r, c); });
    SumOfExponentials<C> own;
    row.pass([&](const T& x, std::int64_t) { own.take(load(x)); });
    const SumOfExponentials<C> all = own.template of_block<kWarps>();
    const auto log_sum = logarithm(all.sum);
    const auto log_prob = [&](const T& x) { return cast<T>(log_probability(load(x), all.largest, log_sum)); };
    row.pass([&](const T& x, std::int64_t c) { out(r, c) = log_prob(x); });
    if (target == nullptr || place != 0) continue;
    const std::int64_t wanted = target[r * target_step];
    if (ignored(wanted)) {
      losses[r * loss_step] = cast<T>(0.0F);
      continue;
    }
    if (wanted < 0 || wanted >= columns) {
      note_fault(faults, FaultKind::target, r, wanted, columns);
      continue;
    }
    losses[r * loss_step] = cast<T>(-load(log_prob(in(r, wanted))));
  }
}

template <class T>
__global__ void loss_gradient_kernel(std::int64_t rows, std::int64_t columns, Divisor by_columns,
                                     Matrix<const T> log_probs, const std::int64_t* target,
                                     std::int64_t target_step, Ignored ignored, const T* grad_losses,
                                     std::int64_t loss_step, Matrix<T> grad) {
  using C = Compute<T>;
  struct Read {
    std::int64_t r, c, wanted;
    T log_prob, grad_loss;
  };
  const auto read = [&](std::int64_t e) {
    const std::int64_t r = by_columns(e), c = e - r * columns;
    return Read{r, c, target[r * target_step], log_probs(r, c), grad_losses[r * loss_step]};
  };
  for_each_ahead<4>(first_item(), rows * columns, item_step(), read, [&](const Read& at, std::int64_t) {
    const C hit = at.c == at.wanted ? C(1) : C(0);
    const C through = (exp(load(at.log_prob)) - hit) * load(at.grad_loss);
    grad(at.r, at.c) = ignored(at.wanted) ? cast<T>(C(0)) : cast<T>(through);
  });
}

/// All dimensions but the first.
Dims tail(const Dims& dims) {
  return Dims(std::span(dims.begin() + 1, static_cast<std::size_t>(dims.rank() - 1)));
}

template <class T>
void run_log_softmax(const Context& context, const View& in, const View& out, const View& target,
                     Ignored ignored, const View& losses) {
  const bool with_loss = target.data != nullptr;
  const auto launch = [&](unsigned blocks, auto warps) {
    constexpr int kWarps = decltype(warps)::value;
    DTRAIN_LAUNCH("log_softmax", context.stream, blocks, kWarps == 1 ? kThreads : kWarps * kWarp,
                  (log_softmax_kernel<T, kWarps>), in.shape[0], in.shape[1], Matrix<const T>(in),
                  Matrix<T>(out), target.as<const std::int64_t>(), with_loss ? target.strides[0] : 0, ignored,
                  losses.as<T>(), with_loss ? losses.strides[0] : 0, context.faults.record());
  };
  if (in.shape[1] < kLongRow)
    return launch(blocks_for_rows(context, in.shape[0]), std::integral_constant<int, 1>());
  launch(blocks_for(context, in.shape[0], 1), std::integral_constant<int, kWarpsOfLongRow>());
}

}  // namespace

void CudaKernels::argmax(const View& in, const View& out) {
  const Dims kept = without_dim(in.shape, in.rank() - 1);
  if (out.numel() == 0) return;
  const Layout<2> rows = make_layout<2>(kept, {in.strides, out.strides});
  dispatch_arithmetic("argmax", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("argmax", context_.stream, blocks_for_rows(context_, rows.count), kThreads,
                  argmax_kernel<T>, rows, in.shape.back(), in.strides.back(), in.as<const T>(),
                  out.as<std::int64_t>());
  });
}

void CudaKernels::index_select(const View& in, const View& index, const View& out) {
  if (out.numel() == 0) return;
  const Layout<2> row = make_layout<2>(tail(in.shape), {tail(out.strides), tail(in.strides)});
  dispatch_bits(in.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("index_select", context_.stream, blocks_for(context_, out.numel()), kThreads,
                  select_kernel<T>, index.shape[0], row, Divisor(row.count), index.as<const std::int64_t>(),
                  index.strides[0], in.shape[0], out.strides[0], in.strides[0], in.as<const T>(), out.as<T>(),
                  context_.faults.record());
  });
}

void CudaKernels::index_add(const View& in, const View& index, const View& out) {
  if (in.numel() == 0) return;
  const Layout<2> row = make_layout<2>(tail(in.shape), {tail(out.strides), tail(in.strides)});
  dispatch_floating("index_add", in.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("index_add", context_.stream, blocks_for(context_, index.shape[0], 1), kThreads,
                  add_kernel<T>, index.shape[0], row, index.as<const std::int64_t>(), index.strides[0],
                  out.shape[0], out.strides[0], in.strides[0], in.as<const T>(), out.as<T>(),
                  context_.faults.record());
  });
}

void CudaKernels::log_softmax(const View& in, const View& out) {
  if (in.numel() == 0) return;
  dispatch_floating("log_softmax", in.dtype, [&](auto tag) {
    run_log_softmax<decltype(tag)>(context_, in, out, View{}, IgnoredTarget(), View{});
  });
}

void CudaKernels::cross_entropy(const View& logits, const View& target, IgnoredTarget ignored,
                                const View& log_probs, const View& losses) {
  if (logits.shape[0] == 0) return;
  dispatch_floating("cross_entropy", logits.dtype, [&](auto tag) {
    run_log_softmax<decltype(tag)>(context_, logits, log_probs, target, ignored, losses);
  });
}

void CudaKernels::cross_entropy_backward(const View& log_probs, const View& target, IgnoredTarget ignored,
                                         const View& grad_losses, const View& grad_logits) {
  if (log_probs.numel() == 0) return;
  dispatch_floating("cross_entropy_backward", log_probs.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("cross_entropy_backward", context_.stream, blocks_for(context_, log_probs.numel()),
                  kThreads, loss_gradient_kernel<T>, log_probs.shape[0], log_probs.shape[1],
                  Divisor(log_probs.shape[1]), Matrix<const T>(log_probs), target.as<const std::int64_t>(),
                  target.strides[0], ignored, grad_losses.as<const T>(), grad_losses.strides[0],
                  Matrix<T>(grad_logits));
  });
}

}  // namespace dtrain::cuda
