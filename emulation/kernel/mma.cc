#include "emulation/include/emulated_mma.h"

namespace emulation::device {
namespace {

/// `kElements` a register. Lane 4 r + c has of the left factor, register by register, rows r and r + 8 at
/// columns from c · kElements on, then both at those from (c + 4) · kElements on; of the right one the same
/// rows of column r.
template <int kElements>
LaneSums multiply(LaneSums sums, const float (&left)[4 * kElements], const float (&right)[2 * kElements]) {
  constexpr int kLeft = 4 * kElements, kAll = 6 * kElements;
  std::uint64_t words[kAll / 2];
  std::memcpy(words, left, sizeof left);
  std::memcpy(words + kLeft / 2, right, sizeof right);
  const Words* const seen = exchange(kWholeWarp, words, kAll / 2);
  const auto number = [seen](int of, int i) {
    float value;
    std::memcpy(
        &value,
        reinterpret_cast<const std::byte*>(seen[of].data()) + sizeof value * static_cast<std::size_t>(i),
        sizeof value);
    return value;
  };
  const int row = lane() / 4 * 4, column = lane() % 4 * 8;
  for (int at = 0; at < 4; ++at) {
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < 4 * kElements; ++k) {
        sums.at[at] += number(row + k / kElements, (2 * half + at / 2) * kElements + k % kElements) *
                       number(column + at % 2 * 4 + k / kElements, kLeft + half * kElements + k % kElements);
      }
    }
  }
  return sums;
}

}  // namespace

LaneSums multiply_m16n8k16(LaneSums sums, LeftWords left, RightWords right,
                           float (*widen)(std::uint16_t bits)) {
  float lefts[8], rights[4];
  for (int i = 0; i < 8; ++i) lefts[i] = widen(static_cast<std::uint16_t>(left.at[i / 2] >> (i % 2 * 16)));
  for (int i = 0; i < 4; ++i) rights[i] = widen(static_cast<std::uint16_t>(right.at[i / 2] >> (i % 2 * 16)));
  return multiply<2>(sums, lefts, rights);
}

LaneSums multiply_m16n8k8(LaneSums sums, LeftWords left, RightWords right) {
  constexpr unsigned kTf32 = 0xFFFFE000U;
  for (unsigned& word : left.at) word &= kTf32;
  for (unsigned& word : right.at) word &= kTf32;
  float lefts[4], rights[2];
  std::memcpy(lefts, left.at, sizeof lefts);
  std::memcpy(rights, right.at, sizeof rights);
  return multiply<1>(sums, lefts, rights);
}

}  // namespace emulation::device
