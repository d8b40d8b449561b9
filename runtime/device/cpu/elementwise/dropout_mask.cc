// Masks of dropout, a block of draws at a time; one draw is for four neighbours.
#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/loops/draws.h"
#include "runtime/device/philox.h"

namespace dtrain::cpu {
namespace {

constexpr int kDraws = 64;
constexpr std::int64_t kPlaces = 4 * kDraws;
constexpr double kPlaceNs = 1;

/// An element as bits, which go into vectors whatever its type.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

/// `kept` or 0 at the places of a row from `first`, a multiple of kPlaces, on.
template <class Bits>
inline void mask_block(std::uint64_t key, std::uint64_t row, std::int32_t limit, Bits kept,
                       std::int64_t first, Bits* out) {
  const Draws<kDraws> draws(key, static_cast<std::uint64_t>(first / 4), 1, row);
  Bits bits[4][kDraws];
  for (int w = 0; w < 4; ++w) {
    DTRAIN_INDEPENDENT
    for (int i = 0; i < kDraws; ++i) bits[w][i] = is_below_limit(draws.words[w][i], limit) ? kept : Bits{0};
  }
  DTRAIN_INDEPENDENT
  for (int i = 0; i < kDraws; ++i) {
    out[4 * i] = bits[0][i];
    out[4 * i + 1] = bits[1][i];
    out[4 * i + 2] = bits[2][i];
    out[4 * i + 3] = bits[3][i];
  }
}

/// The places of a row from `begin` to before `end`, which are in one block.
template <class Bits>
inline void mask_places(std::uint64_t key, std::uint64_t row, std::int32_t limit, Bits kept,
                        std::int64_t begin, std::int64_t end, Bits* out) {
  const std::int64_t first = begin / kPlaces * kPlaces;
  if (end - begin == kPlaces) return mask_block(key, row, limit, kept, first, out);
  Bits block[kPlaces];
  mask_block(key, row, limit, kept, first, block);
  std::memcpy(out, block + (begin - first), static_cast<std::size_t>(end - begin) * sizeof(Bits));
}

}  // namespace

void CpuKernels::dropout_mask(const MaskNumbers& numbers, double keep, const View& out) {
  const std::int64_t rows = mask_rows(numbers, out);
  if (out.numel() == 0) return;
  const auto* const names = numbers.rows.as<const std::int64_t>();
  const std::uint64_t key = philox_key(numbers.seed, numbers.layer,
                                       static_cast<std::uint64_t>(*numbers.step.as<const std::int64_t>()));
  const std::int64_t count = out.numel() / rows, begin = numbers.first, end = begin + count;
  const std::int64_t first_block = begin / kPlaces, blocks = (end + kPlaces - 1) / kPlaces - first_block;
  const std::int32_t limit = limit_of(keep);
  dispatch_floating("dropout_mask", out.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Bits = BitsOf<T>;
    const auto kept = std::bit_cast<Bits>(cast<T>(1.0 / keep));
    auto* const to = static_cast<Bits*>(out.data);
    for_ranges(rows * blocks, kElementsOfChunk / kPlaces, kPlaceNs * static_cast<double>(kPlaces),
               [&](std::int64_t from, std::int64_t until) {
                 widest([&] {
                   for (std::int64_t i = from; i < until; ++i) {
                     const std::int64_t row = i / blocks, block = first_block + i % blocks;
                     const std::int64_t low = std::max(begin, block * kPlaces);
                     const auto name = static_cast<std::uint64_t>(names == nullptr ? row : names[row]);
                     mask_places(key, name, limit, kept, low, std::min(end, (block + 1) * kPlaces),
                                 to + row * count + (low - begin));
                   }
                 });
               });
  });
}

}  // namespace dtrain::cpu
