// The GPU's matrix units (compute capability 8.0 on) for elements of 16 bits: a warp multiplies 16 x 16 by 16
// x 8 and adds to f32; and copies into shared memory that run at the same time. Named after what they do; the
// instructions are those of the PTX ISA, "mma.m16n8k16", "mma.m16n8k8", "ldmatrix" and "cp.async", whose
// spread of elements over lanes is used: lane 4 r + c of a warp has the neighbours 2 c, 2 c + 1 of row r.
#pragma once

#include "runtime/device/cuda/launch.cuh"

#if defined(EMULATED_CUDA)
#include <emulated_mma.h>
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error \
    "dtrain needs GPUs of compute capability 8.0 or later; set CMAKE_CUDA_ARCHITECTURES to 80-real or above"
#endif

namespace dtrain::cuda {

/// A warp's 16 x 16 left factor: rows r and r + 8 at columns 2 c, 2 c + 1, then the same at columns 2 c + 8,
/// 2 c + 9. Of f32 16 x 8: rows r and r + 8 at column c, then at column c + 4.
struct LeftTile {
  unsigned at[4] = {};
};
/// Its 16 x 8 right factor: column r at rows 2 c, 2 c + 1, then 2 c + 8, 2 c + 9. Of f32 8 x 8: at row c,
/// then c + 4.
struct RightTile {
  unsigned at[2] = {};
};
/// The 16 x 8 sums: row r at columns 2 c, 2 c + 1, then row r + 8.
struct SumTile {
  float at[4] = {};
};

/// sums += left · right. T: BF16, F16 or float; of floats the lower 13 bits are ignored (TF32).
template <class T>
__device__ __forceinline__ void multiply_add(SumTile& sums, const LeftTile& left, const RightTile& right) {
#if defined(EMULATED_CUDA)
  if constexpr (std::is_same_v<T, float>) {
    emulation::device::multiply_m16n8k8(sums.at, left.at, right.at);
  } else {
    emulation::device::multiply_m16n8k16<T>(sums.at, left.at, right.at);
  }
#elif defined(__CUDA_ARCH__)
  auto& [d0, d1, d2, d3] = sums.at;
  if constexpr (std::is_same_v<T, float>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.at[0]),
          "r"(right.at[1]));
  } else if constexpr (std::is_same_v<T, BF16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.at[0]),
          "r"(right.at[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.at[0]),
          "r"(right.at[1]));
  }
#endif
}

/// Four squares of 8 x 8 elements of 16 bits from shared memory: lane 8 m + r names where row r of square m
/// begins (aligned to 16 bytes). This lane's part of square m goes to `to[m]`: the neighbours 2 c, 2 c + 1 of
/// row r, or of column r where the squares are turned. Of f32 a square that is not turned is 8 x 4, and the
/// part its column c.
template <bool kTurned>
__device__ __forceinline__ void load_squares(unsigned (&to)[4], const void* row) {
#if defined(EMULATED_CUDA)
  emulation::device::load_squares(to, row, kTurned);
#elif defined(__CUDA_ARCH__)
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  auto& [t0, t1, t2, t3] = to;
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(t0), "=r"(t1), "=r"(t2), "=r"(t3)
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(t0), "=r"(t1), "=r"(t2), "=r"(t3)
                 : "r"(at)
                 : "memory");
  }
#endif
}

/// Begins to copy 16 bytes from global to shared memory, or to write zeros there; both are aligned to 16
/// bytes, and `from` is an address of GPU memory in any case.
__device__ __forceinline__ void begin_copy(void* to, const void* from, bool is_there) {
#if defined(EMULATED_CUDA)
  *static_cast<uint4*>(to) = is_there ? *static_cast<const uint4*>(from) : uint4{};
#elif defined(__CUDA_ARCH__)
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
#endif
}
/// What this thread has begun since the last call is one group of copies.
__device__ __forceinline__ void end_group() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until all of this thread's groups but the last `kLeft` are there; a barrier makes them visible to
/// the block.
template <int kLeft>
__device__ __forceinline__ void await_groups() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

__device__ __forceinline__ unsigned bits_of(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
__device__ __forceinline__ float float_of(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/// Two f32 as neighbours of 16 bits, the first in the lower half.
template <class T>
__device__ __forceinline__ unsigned pack_pair(float first, float second) {
  const T pair[2] = {cast<T>(first), cast<T>(second)};
  unsigned bits;
  memcpy(&bits, pair, sizeof bits);
  return bits;
}

}  // namespace dtrain::cuda
