// Layer and RMS norm: a block takes a row, which it reads once where it is not too long; gradients of weight
// and bias are column sums, slice by slice.
#include "runtime/device/cuda/norm/sums.cuh"

namespace dtrain::cuda {
namespace {

/// The sum over a block of whole warps, up to kThreads threads, for all of them.
template <class C>
__device__ C block_sum(C value) {
  __shared__ C partial[kThreads / 32];
  __shared__ C total;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffU, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    C sum = 0;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) sum += partial[warp];
    total = sum;
  }
  __syncthreads();
  return total;  // the next sum writes it behind its first barrier, where all have read this one
}

/// The matrices of a row norm; null data where there is none.
template <class T>
struct RowArrays {
  std::int64_t rows, count;
  const T* input;
  const T* weight;
  norm::Channel<T>* mean;
  norm::Channel<T>* inv_std;
};

/// Packs of a row that a thread keeps: with kThreads threads 8192 columns of 16 bits.
template <int V>
constexpr int kKept = V > 1 ? 4 : 8;

/// Columns i · V to i · V + V - 1 of an array along rows; `otherwise` where there is none.
template <int V, class T, class C>
__device__ void load_columns(const T* array, std::int64_t i, C otherwise, C (&to)[V]) {
  if (array == nullptr) {
    for (C& each : to) each = otherwise;
    return;
  }
  const auto pack = reinterpret_cast<const Pack<T, V>*>(array)[i];
#pragma unroll
  for (int v = 0; v < V; ++v) to[v] = static_cast<C>(load(pack.at[v]));
}

template <class T, int V>
__global__ void row_norm_kernel(RowNormRule rule, RowArrays<T> at, std::int64_t packs, const T* bias,
                                T* output) {
  using C = norm::Channel<T>;
  using P = Pack<T, V>;
  const C length = static_cast<C>(at.count);
  for (std::int64_t r = blockIdx.x; r < at.rows; r += gridDim.x) {
    const auto* const in = reinterpret_cast<const P*>(at.input + r * at.count);
    const auto row =
        read_row<kKept<V>>(threadIdx.x, packs, blockDim.x, [in](std::int64_t i) { return in[i]; });
    C sum = 0, squares = 0;
    if (rule.centered) {
      row.pass([&](const P& pack, std::int64_t) {
#pragma unroll
        for (int v = 0; v < V; ++v) sum += static_cast<C>(load(pack.at[v]));
      });
    }
    const C mean = rule.centered ? block_sum(sum) / length : C(0);
    row.pass([&](const P& pack, std::int64_t) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C x = static_cast<C>(load(pack.at[v])) - mean;
        squares += x * x;
      }
    });
    const C scale = C(1) / sqrt(block_sum(squares) / length + static_cast<C>(rule.eps));
    if (threadIdx.x == 0) {
      at.inv_std[r] = scale;
      if (at.mean != nullptr) at.mean[r] = mean;
    }
    auto* const out = reinterpret_cast<P*>(output + r * at.count);
    row.pass([&](const P& pack, std::int64_t i) {
      C weights[V], shifts[V];
      load_columns<V>(at.weight, i, C(1), weights);
      load_columns<V>(bias, i, C(0), shifts);
      P result;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        C y = (static_cast<C>(load(pack.at[v])) - mean) * scale;
        if (at.weight != nullptr) y *= weights[v];
        if (bias != nullptr) y += shifts[v];
        result.at[v] = cast<T>(y);
      }
      out[i] = result;
    });
  }
}

template <class T, int V>
__global__ void row_gradient_kernel(RowArrays<T> at, std::int64_t packs, const T* grad_output,
                                    T* grad_input) {
  using C = norm::Channel<T>;
  using P = Pack<T, V>;
  struct Read {
    P x, grad;
  };
  const C length = static_cast<C>(at.count);
  for (std::int64_t r = blockIdx.x; r < at.rows; r += gridDim.x) {
    const auto* const in = reinterpret_cast<const P*>(at.input + r * at.count);
    const auto* const grad = reinterpret_cast<const P*>(grad_output + r * at.count);
    const C mean = at.mean == nullptr ? C(0) : at.mean[r], scale = at.inv_std[r];
    const auto row = read_row<kKept<V> / 2>(threadIdx.x, packs, blockDim.x, [in, grad](std::int64_t i) {
      return Read{in[i], grad[i]};
    });
    // Calls f(i, v, gradient · weight, normalised input) for each element.
    const auto each = [&](auto f) {
      row.pass([&](const Read& read, std::int64_t i) {
        C weights[V];
        load_columns<V>(at.weight, i, C(1), weights);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          f(i, v, static_cast<C>(load(read.grad.at[v])) * weights[v],
            (static_cast<C>(load(read.x.at[v])) - mean) * scale);
        }
      });
    };
    C level = 0, along = 0;
    each([&](std::int64_t, int, C weighted, C normalised) {
      level += weighted;
      along += weighted * normalised;
    });
    level = at.mean == nullptr ? C(0) : block_sum(level) / length;
    along = block_sum(along) / length;
    auto* const out = reinterpret_cast<P*>(grad_input + r * at.count);
    P result;
    each([&](std::int64_t i, int v, C weighted, C normalised) {
      result.at[v] = cast<T>((weighted - level - normalised * along) * scale);
      if (v == V - 1) out[i] = result;
    });
  }
}

/// What sums_kernel adds up for each column: the gradient, and its product with the normalised input. V
/// columns of a row lie in aligned packs.
template <class T, int V>
struct ColumnTerms {
  using C = norm::Channel<T>;
  using Index = std::int64_t;
  using Pack = cuda::Pack<T, V>;

  __device__ void gather(Index begin, Index end, Index step, Index column, double (&sum)[V],
                         double (&products)[V]) const {
    for (Index row = begin; row < end; row += norm::kStretch * step) {
      C near[V] = {}, product[V] = {};
      for_each_ahead<norm::kAhead / 2>(
          row, min(end, row + norm::kStretch * step), step, [&](Index r) { return read(r, column); },
          [&](const Read& one, Index) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
              const C through = static_cast<C>(load(one.dy.at[v]));
              near[v] += through;
              product[v] += through * (static_cast<C>(load(one.x.at[v])) - one.mean) * one.scale;
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

  RowArrays<T> at;
  const T* grad;

 private:
  struct Read {
    Pack dy, x;
    C mean, scale;
  };
  __device__ Read read(Index row, Index column) const {
    return {*reinterpret_cast<const Pack*>(grad + row * at.count + column),
            *reinterpret_cast<const Pack*>(at.input + row * at.count + column),
            at.mean == nullptr ? C(0) : at.mean[row], at.inv_std[row]};
  }
};

template <class T>
struct SetColumnGradients {
  __device__ void operator()(std::int64_t c, double, double sum, double products) const {
    if (grad_weight != nullptr) grad_weight[c] = cast<T>(products);
    if (grad_bias != nullptr) grad_bias[c] = cast<T>(sum);
  }
  T *grad_weight, *grad_bias;
};

template <class T>
RowArrays<T> arrays_of(const View& input, const View& weight, const View& mean, const View& inv_std) {
  using C = norm::Channel<T>;
  return {input.shape[0],       input.shape[1], input.as<const T>(),
          weight.as<const T>(), mean.as<C>(),   inv_std.as<C>()};
}

/// Threads for a row: a pack each, as far as there are so many, in whole warps.
int threads_for(std::int64_t packs) {
  return static_cast<int>(std::clamp<std::int64_t>((packs + 31) / 32 * 32, 32, kThreads));
}

/// Whether rows can be read in the widest packs, as far as the arrays are there.
template <class T>
bool has_wide_rows(std::int64_t count, std::initializer_list<const View*> arrays) {
  return count % kWide<T> == 0 && std::all_of(arrays.begin(), arrays.end(), [](const View* array) {
           return array->data == nullptr || is_aligned(array->data, 16);
         });
}

}  // namespace

void CudaKernels::row_norm(const RowNormRule& rule, const View& input, const View& weight, const View& bias,
                           const View& mean, const View& inv_std, const View& output) {
  if (input.numel() == 0) return;
  dispatch_floating("row_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowArrays<T> at = arrays_of<T>(input, weight, mean, inv_std);
    norm::dispatch_width<T>(has_wide_rows<T>(at.count, {&input, &weight, &bias, &output}), [&](auto width) {
      constexpr int V = decltype(width)::value;
      const std::int64_t packs = at.count / V;
      const int threads = threads_for(packs);
      DTRAIN_LAUNCH("row_norm", context_.stream, blocks_for(context_, at.rows * threads, threads), threads,
                    (row_norm_kernel<T, V>), rule, at, packs, bias.as<const T>(), output.as<T>());
    });
  });
}

void CudaKernels::row_norm_backward(const View& input, const View& weight, const View& mean,
                                    const View& inv_std, const View& grad_output, const View& grad_input,
                                    const View& grad_weight, const View& grad_bias) {
  constexpr std::string_view kName = "row_norm_backward";
  if (input.numel() == 0) {
    for (const View* gradient : {&grad_weight, &grad_bias}) {
      if (gradient->data != nullptr) fill(*gradient, 0.0);
    }
    return;
  }
  dispatch_floating(kName, input.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowArrays<T> at = arrays_of<T>(input, weight, mean, inv_std);
    const T* const grad = grad_output.as<const T>();
    if (grad_input.data != nullptr) {
      norm::dispatch_width<T>(
          has_wide_rows<T>(at.count, {&input, &weight, &grad_output, &grad_input}), [&](auto width) {
            constexpr int V = decltype(width)::value;
            const std::int64_t packs = at.count / V;
            const int threads = threads_for(packs);
            DTRAIN_LAUNCH(kName, context_.stream, blocks_for(context_, at.rows * threads, threads), threads,
                          (row_gradient_kernel<T, V>), at, packs, grad, grad_input.as<T>());
          });
    }
    if (grad_weight.data == nullptr && grad_bias.data == nullptr) return;
    norm::dispatch_width<T>(has_wide_rows<T>(at.count, {&input, &grad_output}), [&](auto width) {
      constexpr int V = decltype(width)::value;
      norm::sum_up<V>(context_, kName, input, ColumnTerms<T, V>{at, grad},
                      SetColumnGradients<T>{grad_weight.as<T>(), grad_bias.as<T>()});
    });
  });
}

}  // namespace dtrain::cuda
