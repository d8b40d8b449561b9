// The softmax losses. One warp a row, or a block where it is long; sums of exponentials are accumulated with
// a double's digits, as on the CPU.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/elementwise/layout.h"
#include "runtime/device/cuda/loads.cuh"
#include "runtime/device/cuda/rows/warps.cuh"

namespace dtrain::cuda {
namespace {

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

/// A matrix by its strides.
template <class T>
struct Matrix {
  Matrix() = default;
  explicit Matrix(const View& view)
      : data(static_cast<T*>(view.data)), row_step(view.strides[0]), column_step(view.strides[1]) {}
  __device__ T& operator()(std::int64_t r, std::int64_t c) const {
    return data[r * row_step + c * column_step];
  }
  T* data = nullptr;
  std::int64_t row_step = 0, column_step = 0;
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
  /// All lanes' together, for all lanes.
  __device__ SumOfExponentials of_warp() const {
    const C most = warp_max(largest), below = largest == most ? C(0) : largest - most;  // -∞ - -∞ is NaN
    return {most, warp_sum(scaled(sum, exp(below)))};
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

constexpr int kWarpsForSlopes = 32;  ///< one block a multiprocessor: the rows at work stay in the L2 cache

/// kWarps warps take a row, as in log_softmax_kernel, in packs of V elements. Its second pass goes backwards:
/// what was read last is still near.
template <class T, class Slope, int V, int kWarps>
__global__ void loss_slopes_kernel(std::int64_t rows, std::int64_t columns, Matrix<const T> logits,
                                   const std::int64_t* target, std::int64_t target_step, Ignored ignored,
                                   T* losses, std::int64_t loss_step, Matrix<Slope> slopes,
                                   FaultRecord* faults) {
  const std::int64_t first = kWarps == 1 ? first_row() : blockIdx.x,
                     step = kWarps == 1 ? row_step() : gridDim.x;
  const int place = kWarps == 1 ? lane() : static_cast<int>(threadIdx.x);
  constexpr int kPlaces = kWarps * kWarp;
  const std::int64_t packs = columns / V;
  const auto load_pack = [&](std::int64_t r, std::int64_t p) {
    if constexpr (V == 1) {
      return Pack<T, 1>{logits(r, p)};
    } else {
      return *reinterpret_cast<const Pack<T, V>*>(&logits(r, p * V));
    }
  };
  for (std::int64_t r = first; r < rows; r += step) {
    const std::int64_t wanted = target[r * target_step];
    const bool counts = !ignored(wanted), is_class = wanted >= 0 && wanted < columns;
    const T asked = is_class ? logits(r, wanted) : T(0);  // before it is written over
    if (kWarps == 1) __syncwarp();
    SumOfExponentials<T> own;
    for_each_ahead<4>(
        static_cast<std::int64_t>(place), packs, static_cast<std::int64_t>(kPlaces),
        [&](std::int64_t p) { return load_pack(r, p); },
        [&](const Pack<T, V>& pack, std::int64_t) {
#pragma unroll
          for (int v = 0; v < V; ++v) own.take(pack.at[v]);
        });
    for (std::int64_t c = packs * V + place; c < columns; c += kPlaces) own.take(logits(r, c));
    const SumOfExponentials<T> all = own.template of_block<kWarps>();
    if (place == 0) {
      losses[r * loss_step] = counts ? -log_probability(asked, all.largest, logarithm(all.sum)) : T(0);
      if (counts && !is_class) note_fault(faults, FaultKind::target, r, wanted, columns);
    }
    if (slopes.data == nullptr) continue;
    const T share = counts ? T(1) / static_cast<T>(widened(all.sum)) : T(0);
    const auto slope = [&](T x, std::int64_t c) {
      const T probability = exp(x - all.largest) * share;
      return cast<Slope>(!counts ? T(0) : c == wanted ? probability - T(1) : probability);
    };
    for (std::int64_t c = packs * V + place; c < columns; c += kPlaces) slopes(r, c) = slope(logits(r, c), c);
    for_each_ahead<4>(
        static_cast<std::int64_t>(place), packs, static_cast<std::int64_t>(kPlaces),
        [&](std::int64_t p) { return load_pack(r, packs - 1 - p); },
        [&](const Pack<T, V>& pack, std::int64_t p) {
          Pack<Slope, V> result;
#pragma unroll
          for (int v = 0; v < V; ++v) result.at[v] = slope(pack.at[v], (packs - 1 - p) * V + v);
          if constexpr (V == 1) {
            slopes(r, packs - 1 - p) = result.at[0];
          } else {
            *reinterpret_cast<Pack<Slope, V>*>(&slopes(r, (packs - 1 - p) * V)) = result;
          }
        });
  }
}

/// Whether rows can be read and written V neighbours at a time.
template <int V, class T>
bool in_packs(const View& view) {
  return view.strides[1] == 1 && view.strides[0] % V == 0 && is_aligned(view.data, V * sizeof(T));
}

template <class T, class Slope>
void run_loss_slopes(const Context& context, const View& logits, const View& target, Ignored ignored,
                     const View& losses, const View& slopes) {
  constexpr int V = kWide<T>;
  const Matrix<Slope> to = slopes.data == nullptr ? Matrix<Slope>() : Matrix<Slope>(slopes);
  const auto launch = [&](auto kernel, unsigned blocks, int threads) {
    DTRAIN_LAUNCH("cross_entropy_slopes", context.stream, blocks, threads, kernel, logits.shape[0],
                  logits.shape[1], Matrix<const T>(logits), target.as<const std::int64_t>(),
                  target.strides[0], ignored, losses.as<T>(), losses.strides[0], to, context.faults.record());
  };
  const bool packed = in_packs<V, T>(logits) && (slopes.data == nullptr || in_packs<V, Slope>(slopes));
  if (packed && logits.shape[1] >= kLongRow) {
    return launch(loss_slopes_kernel<T, Slope, V, kWarpsForSlopes>, blocks_for(context, logits.shape[0], 1),
                  kWarpsForSlopes * kWarp);
  }
  launch(loss_slopes_kernel<T, Slope, 1, 1>, blocks_for_rows(context, logits.shape[0]), kThreads);
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

void CudaKernels::cross_entropy_slopes(const View& logits, const View& target, IgnoredTarget ignored,
                                       const View& losses, const View& slopes) {
  if (logits.numel() == 0) return;
  const auto run = [&](auto tag, auto slope) {
    run_loss_slopes<decltype(tag), decltype(slope)>(context_, logits, target, ignored, losses, slopes);
  };
  if (logits.dtype == DType::f64) return run(double{}, double{});
  if (slopes.data != nullptr && slopes.dtype == DType::bf16) return run(float{}, BF16{});
  if (slopes.data != nullptr && slopes.dtype == DType::f16) return run(float{}, F16{});
  run(float{}, float{});
}

}  // namespace dtrain::cuda
