// By AVX2, a weight is two numbers, of 11 bits and of the 11 above them, so that two taps are multiplied and
// added at once in 16 bits each; the sum of both is the one of 32 bits, bit for bit.
#include "runtime/data/images/across.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/target.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#endif

namespace dtrain {
namespace {

std::uint8_t clip(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

void across_row(const std::uint8_t* row, const ResizeMemory::Weights& weights, std::uint8_t* out) {
  for (std::size_t place = 0; place < weights.begins.size(); ++place, out += 3) {
    const std::uint8_t* pixel = row + 3 * static_cast<std::size_t>(weights.begins[place]);
    const std::int32_t* const values = weights.values.data() + place * static_cast<std::size_t>(weights.taps);
    std::int32_t red = 1 << (kWeightBits - 1), green = red, blue = red;
    for (int k = 0; k < weights.counts[place]; ++k, pixel += 3) {
      red += values[k] * pixel[0];
      green += values[k] * pixel[1];
      blue += values[k] * pixel[2];
    }
    out[0] = clip(red);
    out[1] = clip(green);
    out[2] = clip(blue);
  }
}

#if defined(__x86_64__)

constexpr int kTaps = 4;        // at once
constexpr int kLeastWidth = 8;  // the next row has the bytes that are read behind a row
constexpr int kRows = 4;        // share the weights that are in registers
constexpr int kLow = 11;        // bits of the lower part of a weight

/// Four taps: upper parts of the first two and of the last two, then lower parts.
struct alignas(16) FourTaps {
  std::int16_t parts[8];
};

/// Those of all places one after the other, and where each place's begin.
struct SplitWeights {
  std::vector<FourTaps> groups;
  std::vector<int> begins;  ///< of each place, and the end
};

void split(const ResizeMemory::Weights& weights, SplitWeights& result) {
  result.groups.clear();
  result.begins.assign(1, 0);
  for (std::size_t place = 0; place < weights.begins.size(); ++place) {
    const std::int32_t* const values = weights.values.data() + place * static_cast<std::size_t>(weights.taps);
    for (int k = 0; k < weights.counts[place]; k += kTaps) {
      FourTaps& four = result.groups.emplace_back();
      for (int i = 0; i < kTaps; ++i) {
        const std::int32_t value = k + i < weights.counts[place] ? values[k + i] : 0;
        four.parts[i] = static_cast<std::int16_t>(value >> kLow);
        four.parts[kTaps + i] = static_cast<std::int16_t>(value & ((1 << kLow) - 1));
      }
    }
    result.begins.push_back(static_cast<int>(result.groups.size()));
  }
}

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2)

/// Four rows, each readable for 4 bytes behind its last group of taps.
void across_rows(const std::uint8_t* const* rows, const ResizeMemory::Weights& weights,
                 const SplitWeights& parts, std::uint8_t* const* outs) {
  // Of four pixels the first two go to the lower half, channel by channel, each as 16 bits.
  const __m256i pixels = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                          6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i upper = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
                lower = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
  const __m128i half = _mm_set1_epi32(1 << (kWeightBits - 1));
  const std::size_t places = weights.begins.size();
  for (std::size_t place = 0; place < places; ++place) {
    const std::size_t at = 3 * static_cast<std::size_t>(weights.begins[place]);
    __m256i high[kRows], low[kRows];
    for (int r = 0; r < kRows; ++r) high[r] = low[r] = _mm256_setzero_si256();
    const int end = parts.begins[place + 1];
    std::size_t offset = at;
    for (int g = parts.begins[place]; g < end; ++g, offset += 3 * kTaps) {
      const __m256i group = _mm256_broadcastsi128_si256(
          _mm_load_si128(reinterpret_cast<const __m128i*>(parts.groups[static_cast<std::size_t>(g)].parts)));
      const __m256i upper_weights = _mm256_permutevar8x32_epi32(group, upper),
                    lower_weights = _mm256_permutevar8x32_epi32(group, lower);
      for (int r = 0; r < kRows; ++r) {
        const __m256i taps = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + offset))),
            pixels);
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(taps, upper_weights));
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(taps, lower_weights));
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high[r], kLow), low[r]);
      const __m128i sum =
          _mm_add_epi32(_mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)), half);
      const __m128i words = _mm_srai_epi32(sum, kWeightBits);
      const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(words, words), _mm_setzero_si128());
      const int pixel = _mm_cvtsi128_si32(bytes);
      // The fourth byte is written over by the next pixel; behind the last there may be another row.
      std::memcpy(outs[r] + 3 * place, &pixel, place + 1 < places ? 4 : 3);
    }
  }
}

DTRAIN_TARGET_END

void across_avx2(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to) {
  constexpr std::size_t kBehind = 16;  // bytes that may be read behind a row
  SplitWeights parts;
  split(weights, parts);
  const std::size_t bytes = 3 * static_cast<std::size_t>(from.width);
  std::vector<std::uint8_t> last(bytes + kBehind);
  std::memcpy(last.data(), from.row(from.height - 1), bytes);
  std::vector<std::uint8_t> spare(to.row_bytes());
  for (int y = 0; y < from.height; y += kRows) {
    const std::uint8_t* rows[kRows];
    std::uint8_t* outs[kRows];
    for (int r = 0; r < kRows; ++r) {
      rows[r] = y + r < from.height - 1 ? from.row(y + r) : last.data();
      outs[r] = y + r < from.height ? to.row(y + r) : spare.data();
    }
    across_rows(rows, weights, parts, outs);
  }
}

#endif

}  // namespace

void resize_across(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to) {
#if defined(__x86_64__)
  if (cpu::has_avx2() && from.width >= kLeastWidth) return across_avx2(from, weights, to);
#endif
  for (int y = 0; y < from.height; ++y) across_row(from.row(y), weights, to.row(y));
}

}  // namespace dtrain
