// Layer and RMS norm: a block takes a row; gradients of weight and bias are column sums, slice by slice.
#include "runtime/device/cuda/norm/sums.cuh"

namespace dtrain::cuda {
namespace {

/// The sum over a block of kThreads threads, for all of them.
template <class C>
__device__ C block_sum(C value) {
  __shared__ C partial[kThreads / 32];
  __shared__ C total;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffU, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    C sum = 0;
    for (int warp = 0; warp < kThreads / 32; ++warp) sum += partial[warp];
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

template <class T>
__global__ void row_norm_kernel(RowNormRule rule, RowArrays<T> at, const T* bias, T* output) {
  using C = norm::Channel<T>;
  const C length = static_cast<C>(at.count);
  for (std::int64_t r = blockIdx.x; r < at.rows; r += gridDim.x) {
    const T* const in = at.input + r * at.count;
    C sum = 0;
    if (rule.centered) {
      for (std::int64_t i = threadIdx.x; i < at.count; i += kThreads) sum += static_cast<C>(load(in[i]));
    }
    const C mean = rule.centered ? block_sum(sum) / length : C(0);
    C squares = 0;
    for (std::int64_t i = threadIdx.x; i < at.count; i += kThreads) {
      const C x = static_cast<C>(load(in[i])) - mean;
      squares += x * x;
    }
    const C scale = C(1) / sqrt(block_sum(squares) / length + static_cast<C>(rule.eps));
    if (threadIdx.x == 0) {
      at.inv_std[r] = scale;
      if (at.mean != nullptr) at.mean[r] = mean;
    }
    for (std::int64_t i = threadIdx.x; i < at.count; i += kThreads) {
      C y = (static_cast<C>(load(in[i])) - mean) * scale;
      if (at.weight != nullptr) y *= static_cast<C>(load(at.weight[i]));
      if (bias != nullptr) y += static_cast<C>(load(bias[i]));
      output[r * at.count + i] = cast<T>(y);
    }
  }
}

template <class T>
__global__ void row_gradient_kernel(RowArrays<T> at, const T* grad_output, T* grad_input) {
  using C = norm::Channel<T>;
  const C length = static_cast<C>(at.count);
  for (std::int64_t r = blockIdx.x; r < at.rows; r += gridDim.x) {
    const T* const in = at.input + r * at.count;
    const T* const grad = grad_output + r * at.count;
    const C mean = at.mean == nullptr ? C(0) : at.mean[r], scale = at.inv_std[r];
    const auto weighted = [&](std::int64_t i) {
      const C g = static_cast<C>(load(grad[i]));
      return at.weight == nullptr ? g : g * static_cast<C>(load(at.weight[i]));
    };
    const auto normalised = [&](std::int64_t i) { return (static_cast<C>(load(in[i])) - mean) * scale; };
    C level = 0, along = 0;
    for (std::int64_t i = threadIdx.x; i < at.count; i += kThreads) {
      level += weighted(i);
      along += weighted(i) * normalised(i);
    }
    level = at.mean == nullptr ? C(0) : block_sum(level) / length;
    along = block_sum(along) / length;
    for (std::int64_t i = threadIdx.x; i < at.count; i += kThreads) {
      grad_input[r * at.count + i] = cast<T>((weighted(i) - level - normalised(i) * along) * scale);
    }
  }
}

/// What sums_kernel adds up for each column: the gradient, and its product with the normalised input. V
/// columns of a row lie in aligned packs.
template <class T, int V>
struct ColumnTerms {
  using C = norm::Channel<T>;
  using Index = std::int64_t;
  using Pack = norm::Pack<T, V>;

  __device__ void gather(Index begin, Index end, Index step, Index column, double (&sum)[V],
                         double (&products)[V]) const {
    for (Index row = begin; row < end;) {
      C near[V] = {}, product[V] = {};
      for (int n = 0; n < norm::kStretch && row < end; ++n, row += step) {
        const C mean = at.mean == nullptr ? C(0) : at.mean[row], scale = at.inv_std[row];
        const Pack dy = *reinterpret_cast<const Pack*>(grad + row * at.count + column);
        const Pack x = *reinterpret_cast<const Pack*>(at.input + row * at.count + column);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const C through = static_cast<C>(load(dy.at[v]));
          near[v] += through;
          product[v] += through * (static_cast<C>(load(x.at[v])) - mean) * scale;
        }
      }
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

unsigned blocks_for_rows(const Context& context, std::int64_t rows) {
  return blocks_for(context, rows * kThreads);
}

}  // namespace

void CudaKernels::row_norm(const RowNormRule& rule, const View& input, const View& weight, const View& bias,
                           const View& mean, const View& inv_std, const View& output) {
  if (input.numel() == 0) return;
  dispatch_floating("row_norm", input.dtype, [&](auto tag) {
    using T = decltype(tag);
    DTRAIN_LAUNCH("row_norm", context_.stream, blocks_for_rows(context_, input.shape[0]), kThreads,
                  row_norm_kernel<T>, rule, arrays_of<T>(input, weight, mean, inv_std), bias.as<const T>(),
                  output.as<T>());
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
      DTRAIN_LAUNCH(kName, context_.stream, blocks_for_rows(context_, at.rows), kThreads,
                    row_gradient_kernel<T>, at, grad, grad_input.as<T>());
    }
    if (grad_weight.data == nullptr && grad_bias.data == nullptr) return;
    const auto is_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
    const bool wide = at.count % norm::kWide<T> == 0 && is_aligned(at.input) && is_aligned(grad);
    norm::dispatch_width<T>(wide, [&](auto width) {
      constexpr int V = decltype(width)::value;
      norm::sum_up<V>(context_, kName, input, ColumnTerms<T, V>{at, grad},
                      SetColumnGradients<T>{grad_weight.as<T>(), grad_bias.as<T>()});
    });
  });
}

}  // namespace dtrain::cuda
