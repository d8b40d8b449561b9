// From run-time dtypes to compile-time types, element conversions, and how kernels are launched.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "runtime/device/cuda/context.h"
#include "runtime/device/dtype_dispatch.h"

namespace dtrain::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BF16> || std::is_same_v<T, F16>;

/// The type arithmetic on T is done in.
template <class T>
using Compute =
    std::conditional_t<kIsHalf<T>, float, std::conditional_t<std::is_same_v<T, Bool>, std::uint8_t, T>>;

template <class To, class From>
__device__ __forceinline__ To cast(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, BF16>) {
    return cast<To>(__bfloat162float(value));
  } else if constexpr (std::is_same_v<From, F16>) {
    return cast<To>(__half2float(value));
  } else if constexpr (std::is_same_v<From, Bool>) {
    return cast<To>(static_cast<std::uint8_t>(value.bits != 0));
  } else if constexpr (std::is_same_v<To, BF16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, F16>) {
    return __float2half_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Bool>) {
    Bool result;
    result.bits = value != From(0) ? 1 : 0;
    return result;
  } else {
    return static_cast<To>(value);
  }
}

template <class T>
__device__ __forceinline__ Compute<T> load(const T& value) {
  return cast<Compute<T>>(value);
}

inline constexpr DispatchFloating<BF16, F16> dispatch_floating;
inline constexpr DispatchArithmetic<BF16, F16> dispatch_arithmetic;
inline constexpr DispatchScalable<BF16, F16> dispatch_scalable;
inline constexpr DispatchAny<BF16, F16> dispatch_any;
inline constexpr DispatchBits dispatch_bits;

constexpr int kThreads = 256;

/// Blocks for a grid-stride loop over `items`: enough to fill the GPU, no more.
inline unsigned blocks_for(const Context& context, std::int64_t items, int threads = kThreads) {
  const std::int64_t wanted = (items + threads - 1) / threads;
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(wanted, 1, static_cast<std::int64_t>(context.multiprocessors) * 32));
}

/// Index of this thread in a grid-stride loop, and the loop's step.
__device__ __forceinline__ std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t item_step() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// DTRAIN_LAUNCH's own.
inline void check_launch(std::string_view operation) {
  check(cudaGetLastError(), "launch of CUDA kernel " + std::string(operation));
}

}  // namespace dtrain::cuda

/// Queues `kernel` (in parentheses where its name has a comma) as part of `operation`. Throws DeviceError
/// when it cannot be launched. The one place that knows how: on the emulated machine a kernel is a function.
#if defined(EMULATED_CUDA)
#define DTRAIN_START(kernel, grid, block, stream, ...) \
  EMULATED_CUDA_LAUNCH(kernel, grid, block, 0, stream, __VA_ARGS__)
#else
#define DTRAIN_START(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#endif
#define DTRAIN_LAUNCH(operation, stream, grid, block, kernel, ...) \
  do {                                                             \
    DTRAIN_START(kernel, grid, block, stream, __VA_ARGS__);        \
    ::dtrain::cuda::check_launch(operation);                       \
  } while (false)
