// By AVX2, a weight is two numbers, of 11 bits and of the 11 above them, so that two taps are multiplied and
// added at once in 16 bits each; the sum of both is the one of 32 bits, bit for bit.
#include "runtime/data/images/passes.h"

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

const std::int32_t* values_of(const ResizeMemory::Weights& weights, std::size_t place) {
  return weights.values.data() + place * static_cast<std::size_t>(weights.taps);
}

void across_row(const std::uint8_t* row, const ResizeMemory::Weights& weights, std::uint8_t* out) {
  for (std::size_t place = 0; place < weights.begins.size(); ++place, out += 3) {
    const std::uint8_t* pixel = row + 3 * static_cast<std::size_t>(weights.begins[place]);
    const std::int32_t* const values = values_of(weights, place);
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

void down_row(const PictureView& from, const ResizeMemory::Weights& weights, std::size_t place,
              std::size_t bytes, std::uint8_t* out) {
  const std::int32_t* const values = values_of(weights, place);
  for (std::size_t i = 0; i < bytes; ++i) {
    std::int32_t sum = 1 << (kWeightBits - 1);
    for (int k = 0; k < weights.counts[place]; ++k) sum += values[k] * from.row(weights.begins[place] + k)[i];
    out[i] = clip(sum);
  }
}

#if defined(__x86_64__)

constexpr int kTaps = 4;        // at once
constexpr int kLeastWidth = 8;  // the next row has the bytes that are read behind a row
constexpr int kRows = 4;        // share the weights that are in registers
constexpr int kHalf = 1 << (kWeightBits - 1);
constexpr int kLow = 11;  // bits of the lower part of a weight

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
    const std::int32_t* const values = values_of(weights, place);
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
  const __m256i half = _mm256_setr_epi32(kHalf, kHalf, kHalf, kHalf, 0, 0, 0, 0);
  const std::size_t places = weights.begins.size();
  for (std::size_t place = 0; place < places; ++place) {
    const std::size_t at = 3 * static_cast<std::size_t>(weights.begins[place]);
    __m256i high[kRows], low[kRows];
    for (int r = 0; r < kRows; ++r) {
      high[r] = _mm256_setzero_si256();
      low[r] = half;
    }
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
    __m128i words[kRows];
    for (int r = 0; r < kRows; ++r) {
      const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high[r], kLow), low[r]);
      words[r] = _mm_srai_epi32(
          _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)), kWeightBits);
    }
    const __m128i bytes =
        _mm_packus_epi16(_mm_packs_epi32(words[0], words[1]), _mm_packs_epi32(words[2], words[3]));
    const int pixel[kRows] = {_mm_extract_epi32(bytes, 0), _mm_extract_epi32(bytes, 1),
                              _mm_extract_epi32(bytes, 2), _mm_extract_epi32(bytes, 3)};
    // The fourth byte is written over by the next pixel; behind the last there may be another row.
    if (place + 1 < places) {
      for (int r = 0; r < kRows; ++r) std::memcpy(outs[r] + 3 * place, &pixel[r], 4);
    } else {
      for (int r = 0; r < kRows; ++r) std::memcpy(outs[r] + 3 * place, &pixel[r], 3);
    }
  }
}

/// Two taps: upper parts of their weights, then lower parts.
struct TwoTaps {
  std::int16_t high[2], low[2];
};

/// 16 columns of one row: `pairs` pairs of rows.
void down_columns(const std::uint8_t* const* rows, const TwoTaps* weights, int pairs, std::size_t at,
                  std::uint8_t* out) {
  __m256i high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  __m256i low[2] = {_mm256_set1_epi32(kHalf), _mm256_set1_epi32(kHalf)};
  for (int p = 0; p < pairs; ++p) {
    std::int32_t upper, lower;
    std::memcpy(&upper, weights[p].high, sizeof upper);
    std::memcpy(&lower, weights[p].low, sizeof lower);
    const __m256i upper_weights = _mm256_set1_epi32(upper), lower_weights = _mm256_set1_epi32(lower);
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[2 * p] + at)),
                  second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[2 * p + 1] + at));
    const __m256i taps[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second)),
                             _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second))};
    for (int i = 0; i < 2; ++i) {
      high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(taps[i], upper_weights));
      low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(taps[i], lower_weights));
    }
  }
  __m256i words[2];
  for (int i = 0; i < 2; ++i)
    words[i] = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high[i], kLow), low[i]), kWeightBits);
  const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(words[0], words[1]), 0b11'01'10'00);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at),
                   _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1)));
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

/// Of rows of at least 16 bytes. The last 16 columns may overlap those before.
void down_avx2(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to) {
  constexpr std::size_t kColumns = 16;
  const std::size_t bytes = to.row_bytes();
  std::vector<const std::uint8_t*> rows;
  std::vector<TwoTaps> pairs;
  for (std::size_t place = 0; place < weights.begins.size(); ++place) {
    const std::int32_t* const values = values_of(weights, place);
    rows.clear();
    pairs.clear();
    const int count = weights.counts[place];
    for (int k = 0; k < count; k += 2) {
      const std::int32_t first = values[k], second = k + 1 < count ? values[k + 1] : 0;
      constexpr std::int32_t kMask = (1 << kLow) - 1;
      pairs.push_back(
          {{static_cast<std::int16_t>(first >> kLow), static_cast<std::int16_t>(second >> kLow)},
           {static_cast<std::int16_t>(first & kMask), static_cast<std::int16_t>(second & kMask)}});
      rows.push_back(from.row(weights.begins[place] + k));
      rows.push_back(from.row(weights.begins[place] + std::min(k + 1, count - 1)));
    }
    std::uint8_t* const out = to.row(static_cast<int>(place));
    const int size = static_cast<int>(pairs.size());
    for (std::size_t at = 0; at + kColumns <= bytes; at += kColumns)
      down_columns(rows.data(), pairs.data(), size, at, out);
    if (bytes % kColumns != 0) down_columns(rows.data(), pairs.data(), size, bytes - kColumns, out);
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

void resize_down(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to) {
#if defined(__x86_64__)
  if (cpu::has_avx2() && from.width >= kLeastWidth) return down_avx2(from, weights, to);
#endif
  for (std::size_t place = 0; place < weights.begins.size(); ++place)
    down_row(from, weights, place, to.row_bytes(), to.row(static_cast<int>(place)));
}

}  // namespace dtrain
