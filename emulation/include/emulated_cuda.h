// What a kernel's source needs beside CUDA's own headers to be compiled as host code for the emulated
// machine. It is included before a source's first line (-include emulated_cuda.h); nothing in the source
// changes but its launches.
#pragma once

#include <cuda_runtime.h>
#include <math.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <emulated_words.h>

/// A source can tell what it is compiled for.
#define EMULATED_CUDA 1

/// Where the running thread is. Variables and no macros: members of CUDA's structures have these names, too.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace emulation {

/// Queues a kernel: `thread` is what each of its threads does. What was wrong with the launch is returned,
/// and the calling thread's last error (cudaGetLastError).
cudaError_t launch(const char* name, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                   cudaStream_t stream, std::function<void()> thread);

/// For kernels: what the running thread does with the others of its block.
namespace device {

void barrier(const char* file, int line);
int barrier_count(const char* file, int line, bool value);
/// Waits for the lanes in `mask`; returns what each of them brought, by lane (32 of them), until this
/// thread's next exchange.
const Words* exchange(std::uint32_t mask, const std::uint64_t* words, std::size_t count);
inline const Words* exchange(std::uint32_t mask, std::uint64_t word) { return exchange(mask, &word, 1); }
/// Waits for the block's threads [first, first + count), of which this is one.
void meet(unsigned first, unsigned count);
/// The memory that a launch asked for, aligned to 16.
void* dynamic_shared();

inline int lane() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

/// What lane `from` brought, or the own value where there is no such lane in the part of `width` lanes.
template <class T>
T shuffle(std::uint32_t mask, T value, int from, int width) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const int part = lane() / width * width;
  // Large values (uint4) go word by word.
  for (std::size_t at = 0; at < sizeof value; at += kWord) {
    std::byte* const word = reinterpret_cast<std::byte*>(&value) + at;
    const std::size_t bytes = sizeof value - at < kWord ? sizeof value - at : kWord;
    std::uint64_t bits = 0;
    std::memcpy(&bits, word, bytes);
    const Words* const seen = exchange(mask, bits);
    if (from >= part && from < part + width) std::memcpy(word, seen[from].data(), bytes);
  }
  return value;
}

}  // namespace device

/// Copies its arguments, as a launch does, and calls `kernel` with them for each thread.
template <class Kernel, class... Args>
void launch_kernel(const char* name, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                   cudaStream_t stream, Kernel kernel, const Args&... args) {
  launch(name, grid, block, dynamic_shared_bytes, stream,
         [kernel, kept = std::tuple<std::decay_t<const Args>...>(args...)] {
           std::apply([&](const auto&... each) { kernel(each...); }, kept);
         });
}

}  // namespace emulation

/// kernel<<<grid, block, shared, stream>>>(arguments…), as host compilers can read it.
#define EMULATED_CUDA_LAUNCH(kernel, grid, block, shared, stream, ...) \
  ::emulation::launch_kernel(#kernel, grid, block, shared, stream,     \
                             [=](const auto&... each) { kernel(each...); } __VA_OPT__(, ) __VA_ARGS__)

// One block runs at a time in a process.
#undef __shared__
#define __shared__ static
#undef __constant__
#define __constant__ static
#ifndef __launch_bounds__
#define __launch_bounds__(...)  // how many registers a thread may take
#endif
#ifndef warpSize
#define warpSize 32
#endif

#define __syncthreads() ::emulation::device::barrier(__FILE__, __LINE__)
#define __syncthreads_count(value) ::emulation::device::barrier_count(__FILE__, __LINE__, (value) != 0)
#define __syncthreads_or(value) (__syncthreads_count(value) > 0)

inline void __syncwarp(unsigned mask = 0xffffffffU) {
  static_cast<void>(::emulation::device::exchange(mask, 0));
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = ::emulation::device::lane();
  return ::emulation::device::shuffle(mask, value, lane / width * width + from % width, width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  return ::emulation::device::shuffle(mask, value, ::emulation::device::lane() ^ bits, width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return ::emulation::device::shuffle(mask, value, ::emulation::device::lane() + static_cast<int>(by), width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return ::emulation::device::shuffle(mask, value, ::emulation::device::lane() - static_cast<int>(by), width);
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  const ::emulation::device::Words* const seen = ::emulation::device::exchange(mask, value ? 1 : 0);
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1U) != 0 && seen[lane][0] != 0) result |= 1U << lane;
  }
  return result;
}
inline int __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline int __all_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) == mask; }

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
template <class T>
T __ldg(const T* at) {
  return *at;
}
inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
// Never one operation with what comes next (kernels are compiled without contraction).
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
// Of the lowest 24 bits.
inline int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xFFFFFFU) * (b & 0xFFFFFFU); }
inline float __fdividef(float a, float b) { return a / b; }

// CUDA's min and max take arithmetic types of any two kinds.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? static_cast<std::common_type_t<A, B>>(b) : static_cast<std::common_type_t<A, B>>(a);
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? static_cast<std::common_type_t<A, B>>(b) : static_cast<std::common_type_t<A, B>>(a);
}

#include "emulation/include/emulated_atomics.h"
#include "emulation/include/emulated_registry.h"
