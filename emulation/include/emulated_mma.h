// The matrix instructions of a warp (PTX ISA: mma.m16n8k16 and mma.m16n8k8 of TF32 with f32 sums,
// ldmatrix.x4), for sources that call them by these names where EMULATED_CUDA is defined. Sums are added in
// the order of their terms; a GPU may add in another.
#pragma once

#include <emulated_cuda.h>

namespace emulation::device {

constexpr std::uint32_t kWholeWarp = 0xFFFFFFFFU;

void no_such_instruction(const char* instruction);

/// A lane's registers: of the left factor, the right one, and the sums. By value: a local whose address
/// leaves the kernel is watched at each access.
struct LeftWords {
  unsigned at[4];
};
struct RightWords {
  unsigned at[2];
};
struct LaneSums {
  float at[4];
};

/// sums + left · right, each spread over the warp's lanes as the instruction has it. `widen`: of an element
/// of 16 bits.
LaneSums multiply_m16n8k16(LaneSums sums, LeftWords left, RightWords right,
                           float (*widen)(std::uint16_t bits));
/// The same of TF32, which is f32 whose lower 13 bits are ignored: 8 columns of the left factor and 8 rows of
/// the right one.
LaneSums multiply_m16n8k8(LaneSums sums, LeftWords left, RightWords right);

template <class T>
float widen(std::uint16_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return static_cast<float>(value);
}

template <class T>
void multiply_m16n8k16(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  const LaneSums result =
      multiply_m16n8k16({sums[0], sums[1], sums[2], sums[3]}, {left[0], left[1], left[2], left[3]},
                        {right[0], right[1]}, &widen<T>);
  for (int i = 0; i < 4; ++i) sums[i] = result.at[i];
}
inline void multiply_m16n8k8(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  const LaneSums result = multiply_m16n8k8({sums[0], sums[1], sums[2], sums[3]},
                                           {left[0], left[1], left[2], left[3]}, {right[0], right[1]});
  for (int i = 0; i < 4; ++i) sums[i] = result.at[i];
}

/// Lane 8 m + r names row r of square m (8 elements of 16 bits); `to[m]` is this lane's pair of it.
inline void load_squares(unsigned (&to)[4], const void* row, bool turned) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    no_such_instruction("ldmatrix of a row that is not aligned to 16 bytes");
  const Words* const seen = exchange(kWholeWarp, reinterpret_cast<std::uintptr_t>(row));
  const int r = lane() / 4, pair = lane() % 4;
  for (int square = 0; square < 4; ++square) {
    std::uint32_t bits = 0;
    for (int half = 0; half < 2; ++half) {
      const int of = turned ? 2 * pair + half : r, at = turned ? r : 2 * pair + half;
      const auto* const elements = reinterpret_cast<const std::uint16_t*>(seen[8 * square + of][0]);
      bits |= static_cast<std::uint32_t>(elements[at]) << (16 * half);
    }
    to[square] = bits;
  }
}

}  // namespace emulation::device
