// The matrix instructions of a warp (PTX ISA: mma.m16n8k16 and mma.m16n8k8 of TF32 with f32 sums,
// ldmatrix.x4), for sources that call them by these names where EMULATED_CUDA is defined. Sums are added in
// the order of their terms; a GPU may add in another.
#pragma once

#include <emulated_cuda.h>

namespace emulation::device {

constexpr std::uint32_t kWholeWarp = 0xFFFFFFFFU;

void no_such_instruction(const char* instruction);

/// What each lane brought, two words a lane.
struct BroughtWords {
  BroughtWords(unsigned first, unsigned second) {
    const std::uint64_t* const seen = exchange(kWholeWarp, first | static_cast<std::uint64_t>(second) << 32U);
    std::copy(seen, seen + 32, std::begin(of_lane));
  }
  /// Element `half` (0, 1) of word `word` (0, 1) of that lane.
  template <class T>
  float element(int of, int word, int half) const {
    const auto bits = static_cast<std::uint16_t>(of_lane[of] >> (32 * word + 16 * half));
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return static_cast<float>(value);
  }
  /// Word `word` (0, 1) of that lane as TF32: an f32 whose lower 13 bits are ignored.
  float tf32(int of, int word) const {
    const std::uint32_t bits = static_cast<std::uint32_t>(of_lane[of] >> (32 * word)) & 0xFFFFE000U;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  std::uint64_t of_lane[32];
};

/// sums += left · right, each spread over the warp's lanes as the instruction has it.
template <class T>
void multiply_m16n8k16(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  const BroughtWords near(left[0], left[1]), far(left[2], left[3]), factor(right[0], right[1]);
  const int row = lane() / 4, pair = lane() % 4;
  for (int at = 0; at < 4; ++at) {
    const int column = 2 * pair + at % 2;
    for (int k = 0; k < 16; ++k) {
      const int of = k % 8 / 2, half = k % 2;
      const BroughtWords& rows = k < 8 ? near : far;
      sums[at] +=
          rows.element<T>(4 * row + of, at / 2, half) * factor.element<T>(4 * column + of, k / 8, half);
    }
  }
}

/// The same of TF32, 8 columns of the left factor and 8 rows of the right one.
inline void multiply_m16n8k8(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  const BroughtWords near(left[0], left[1]), far(left[2], left[3]), factor(right[0], right[1]);
  const int row = lane() / 4, pair = lane() % 4;
  for (int at = 0; at < 4; ++at) {
    const int column = 2 * pair + at % 2;
    for (int k = 0; k < 8; ++k) {
      const BroughtWords& rows = k < 4 ? near : far;
      sums[at] += rows.tf32(4 * row + k % 4, at / 2) * factor.tf32(4 * column + k % 4, k / 4);
    }
  }
}

/// Lane 8 m + r names row r of square m (8 elements of 16 bits); `to[m]` is this lane's pair of it.
inline void load_squares(unsigned (&to)[4], const void* row, bool turned) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    no_such_instruction("ldmatrix of a row that is not aligned to 16 bytes");
  const std::uint64_t* const seen = exchange(kWholeWarp, reinterpret_cast<std::uintptr_t>(row));
  const int r = lane() / 4, pair = lane() % 4;
  for (int square = 0; square < 4; ++square) {
    std::uint32_t bits = 0;
    for (int half = 0; half < 2; ++half) {
      const int of = turned ? 2 * pair + half : r, at = turned ? r : 2 * pair + half;
      const auto* const elements = reinterpret_cast<const std::uint16_t*>(seen[8 * square + of]);
      bits |= static_cast<std::uint32_t>(elements[at]) << (16 * half);
    }
    to[square] = bits;
  }
}

}  // namespace emulation::device
