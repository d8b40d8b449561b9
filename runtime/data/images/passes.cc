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
constexpr int kBehind = 16;     // bytes that may be read behind a row
constexpr int kLeastWidth = 8;  // the next row has those bytes
constexpr int kRows = 4;        // share the weights that are in registers
constexpr int kHalf = 1 << (kWeightBits - 1);
constexpr int kLow = 11;  // bits of the lower part of a weight

/// Four taps of two neighbours, each in its half: the first two taps, and the last two, of each colour.
struct alignas(32) FourTaps {
  struct Half {
    std::int16_t taps[4][2];  // all alike: red, green, blue and nothing
  };
  Half upper[2][2], lower[2][2];  ///< of the weights: [which two taps][which neighbour]
};

/// Of two places that are computed at once, the last one twice where their number is odd.
struct SplitWeights {
  std::vector<FourTaps> groups;
  std::vector<int> begins;  ///< of each two places' groups, and the end
};

void split(const ResizeMemory::Weights& weights, SplitWeights& result) {
  const std::size_t places = weights.begins.size();
  result.groups.clear();
  result.begins.assign(1, 0);
  for (std::size_t place = 0; place < places; place += 2) {
    const std::size_t both[2] = {place, std::min(place + 1, places - 1)};
    const int count = std::max(weights.counts[both[0]], weights.counts[both[1]]);
    for (int k = 0; k < count; k += kTaps) {
      FourTaps& four = result.groups.emplace_back();
      for (int i = 0; i < kTaps; ++i) {
        for (std::size_t one = 0; one < 2; ++one) {
          const bool is_there = k + i < weights.counts[both[one]];
          const std::int32_t value = is_there ? values_of(weights, both[one])[k + i] : 0;
          for (int colour = 0; colour < 4; ++colour) {
            four.upper[i / 2][one].taps[colour][i % 2] = static_cast<std::int16_t>(value >> kLow);
            four.lower[i / 2][one].taps[colour][i % 2] = static_cast<std::int16_t>(value & ((1 << kLow) - 1));
          }
        }
      }
    }
    result.begins.push_back(static_cast<int>(result.groups.size()));
  }
}

DTRAIN_TARGET_BEGIN(DTRAIN_AVX2)

inline __m128i load_16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline __m256i load_32(const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); }

/// Four rows of `row_bytes`, each readable for kBehind bytes behind them.
void across_rows(const std::uint8_t* const (&rows)[kRows], std::size_t row_bytes,
                 const ResizeMemory::Weights& weights, const SplitWeights& parts,
                 std::uint8_t* const (&outs)[kRows]) {
  // Of four pixels the first two and the last two, colour by colour, each byte as 16 bits.
  const __m256i first_two =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i last_two =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  // Of four bytes a pixel the three that are colours.
  const __m128i colours = _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, 8, 9, 10, 12, 13, 14, -1, -1);
  const std::size_t places = weights.begins.size();
  for (std::size_t place = 0; place < places; place += 2) {
    const std::size_t next = std::min(place + 1, places - 1);
    std::size_t at = 3 * static_cast<std::size_t>(weights.begins[place]),
                next_at = 3 * static_cast<std::size_t>(weights.begins[next]);
    __m256i high[kRows], low[kRows];
    for (int r = 0; r < kRows; ++r) {
      high[r] = _mm256_setzero_si256();
      low[r] = _mm256_set1_epi32(kHalf);
    }
    const int end = parts.begins[place / 2 + 1];
    for (int g = parts.begins[place / 2]; g < end; ++g, at += 3 * kTaps, next_at += 3 * kTaps) {
      const FourTaps& four = parts.groups[static_cast<std::size_t>(g)];
      // A place with fewer taps than its neighbour has weights of zero at its end.
      const std::size_t here = std::min(at, row_bytes), next_here = std::min(next_at, row_bytes);
      for (int r = 0; r < kRows; ++r) {
        const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(rows[r] + here)),
                                                     load_16(rows[r] + next_here), 1);
        const __m256i first = _mm256_shuffle_epi8(both, first_two),
                      last = _mm256_shuffle_epi8(both, last_two);
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(first, load_32(four.upper[0])));
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(first, load_32(four.lower[0])));
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(last, load_32(four.upper[1])));
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(last, load_32(four.lower[1])));
      }
    }
    __m256i words[kRows];
    for (int r = 0; r < kRows; ++r)
      words[r] = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high[r], kLow), low[r]), kWeightBits);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_packs_epi32(words[0], words[1]), _mm256_packs_epi32(words[2], words[3]));
    const __m128i one = _mm256_castsi256_si128(bytes), other = _mm256_extracti128_si256(bytes, 1);
    alignas(16) std::int64_t pixels[kRows];  // two each
    _mm_store_si128(reinterpret_cast<__m128i*>(pixels),
                    _mm_shuffle_epi8(_mm_unpacklo_epi32(one, other), colours));
    _mm_store_si128(reinterpret_cast<__m128i*>(pixels + 2),
                    _mm_shuffle_epi8(_mm_unpackhi_epi32(one, other), colours));
    // The last two bytes are written over by the next pixels; behind the last there may be another row.
    if (place + 2 < places) {
      for (int r = 0; r < kRows; ++r) std::memcpy(outs[r] + 3 * place, &pixels[r], 8);
    } else {
      const std::size_t size = place + 1 < places ? 6 : 3;
      for (int r = 0; r < kRows; ++r) std::memcpy(outs[r] + 3 * place, &pixels[r], size);
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
    across_rows(rows, bytes, weights, parts, outs);
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
