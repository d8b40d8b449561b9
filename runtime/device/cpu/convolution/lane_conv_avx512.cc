// The loops of lane_conv.h in AVX-512: each keeps a tile of sums in registers and runs down the taps.
#include "runtime/device/cpu/convolution/lane_conv.h"

#if defined(__x86_64__)
#include "runtime/device/cpu/intrinsics.h"
#include "runtime/device/cpu/target.h"

DTRAIN_TARGET_BEGIN(DTRAIN_AVX512)

namespace dtrain::cpu::avx512 {
namespace {

/// Transposes 16 registers of 16 floats in place.
inline void transpose(__m512 (&r)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}

inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << count) - 1);
}

void to_lanes(std::int64_t count, const float* from, std::int64_t pitch, float* to) {
  __m512 rows[16];
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 inside = first_lanes(count - i);
    for (int n = 0; n < 16; ++n) rows[n] = _mm512_maskz_loadu_ps(inside, from + n * pitch + i);
    transpose(rows);
    for (int k = 0; k < 16 && i + k < count; ++k) _mm512_store_ps(to + (i + k) * kLanes, rows[k]);
  }
}

void from_lanes(std::int64_t count, const float* from, float* to, std::int64_t pitch) {
  __m512 rows[16];
  for (std::int64_t i = 0; i < count; i += 16) {
    for (int k = 0; k < 16; ++k) {
      rows[k] = i + k < count ? _mm512_load_ps(from + (i + k) * kLanes) : _mm512_setzero_ps();
    }
    transpose(rows);
    const __mmask16 inside = first_lanes(count - i);
    for (int n = 0; n < 16; ++n) _mm512_mask_storeu_ps(to + n * pitch + i, inside, rows[n]);
  }
}

/// T outputs at two neighbouring positions.
template <int T>
inline void two_positions(const LaneConv& conv, const float* x, const float* weight, const float* bias,
                          __m512* y) {
  __m512 left[T], right[T];
  for (int t = 0; t < T; ++t) left[t] = right[t] = _mm512_set1_ps(bias[t]);
  const std::int64_t run = conv.kernel_w * conv.channels, pitch = conv.width * conv.channels * kLanes;
  for (std::int64_t kh = 0; kh < conv.kernel_h; ++kh) {
    const float* row = x + kh * pitch;
    const float* next = row + conv.channels * kLanes;
    for (std::int64_t i = 0; i < run; ++i, weight += T) {
      const __m512 a = _mm512_load_ps(row + i * kLanes), b = _mm512_load_ps(next + i * kLanes);
      for (int t = 0; t < T; ++t) {
        const __m512 w = _mm512_set1_ps(weight[t]);
        left[t] = _mm512_fmadd_ps(a, w, left[t]);
        right[t] = _mm512_fmadd_ps(b, w, right[t]);
      }
    }
  }
  // As second operand a NaN survives the maximum.
  for (int t = 0; t < T; ++t) y[t] = _mm512_max_ps(_mm512_setzero_ps(), left[t]);
  for (int t = 0; t < T; ++t) y[T + t] = _mm512_max_ps(_mm512_setzero_ps(), right[t]);
}

/// Pools four relu outputs and says in one byte a lane which of them backward gives to.
inline __m512 average_of(const __m512 (&y)[4], __m128i& mask) {
  mask = _mm_setzero_si128();
  for (int p = 0; p < 4; ++p) {
    const __mmask16 passes = _mm512_cmp_ps_mask(y[p], _mm512_setzero_ps(), _CMP_NLE_UQ);  // NaN too
    mask = _mm_or_si128(mask, _mm_maskz_set1_epi8(passes, static_cast<char>(1 << p)));
  }
  const __m512 sum = _mm512_add_ps(_mm512_add_ps(y[0], y[1]), _mm512_add_ps(y[2], y[3]));
  return _mm512_mul_ps(sum, _mm512_set1_ps(0.25F));
}

inline __m512 largest_of(const __m512 (&y)[4], __m128i& mask) {
  __m512 best = y[0];
  __m128i place = _mm_set1_epi8(1);
  for (int p = 1; p < 4; ++p) {
    // Larger, or NaN: a NaN wins and stays.
    const auto wins = static_cast<__mmask16>(_mm512_cmp_ps_mask(y[p], best, _CMP_GT_OQ) |
                                             _mm512_cmp_ps_mask(y[p], y[p], _CMP_UNORD_Q));
    best = _mm512_mask_mov_ps(best, wins, y[p]);
    place = _mm_mask_set1_epi8(place, wins, static_cast<char>(p + 1));
  }
  const __mmask16 passes = _mm512_cmp_ps_mask(best, _mm512_setzero_ps(), _CMP_NLE_UQ);
  mask = _mm_maskz_mov_epi8(passes, place);
  return best;
}

template <int T>
void forward_tiles(const LaneConv& conv, const float* x, const float* weight, const float* bias,
                   float* pooled, std::uint8_t* mask) {
  alignas(64) __m512 y[4 * T];
  const std::int64_t pixel = conv.channels * kLanes, pitch = conv.width * pixel;
  for (std::int64_t first = 0; first < conv.outputs; first += T, weight += conv.taps() * T, bias += T) {
    const std::int64_t count = conv.outputs - first < T ? conv.outputs - first : T;
    for (std::int64_t ph = 0; ph < conv.pooled_h; ++ph) {
      for (std::int64_t pw = 0; pw < conv.pooled_w; ++pw) {
        const float* corner = x + 2 * ph * pitch + 2 * pw * pixel;
        two_positions<T>(conv, corner, weight, bias, y);
        two_positions<T>(conv, corner + pitch, weight, bias, y + 2 * T);
        const std::int64_t at = ((ph * conv.pooled_w + pw) * conv.outputs + first) * kLanes;
        for (std::int64_t t = 0; t < count; ++t) {
          const __m512 window[4] = {y[t], y[T + t], y[2 * T + t], y[3 * T + t]};
          __m128i kept;
          const __m512 value =
              conv.kind == PoolKind::avg ? average_of(window, kept) : largest_of(window, kept);
          _mm512_store_ps(pooled + at + t * kLanes, value);
          if (mask != nullptr) _mm_storeu_si128(reinterpret_cast<__m128i*>(mask + at + t * kLanes), kept);
        }
      }
    }
  }
}

void unpool(const LaneConv& conv, const float* grad_pooled, const std::uint8_t* mask, float* dy,
            float* bias_sums) {
  const std::int64_t pixel = round_up(conv.outputs, kOutputTile) * kLanes, pitch = conv.out_w() * pixel;
  const bool average = conv.kind == PoolKind::avg;
  const __m512 share = _mm512_set1_ps(average ? 0.25F : 1.0F);
  for (std::int64_t ph = 0; ph < conv.pooled_h; ++ph) {
    for (std::int64_t pw = 0; pw < conv.pooled_w; ++pw) {
      float* corner = dy + 2 * ph * pitch + 2 * pw * pixel;
      for (std::int64_t o = 0; o < conv.outputs; ++o, grad_pooled += kLanes, mask += kLanes) {
        const __m512 grad = _mm512_mul_ps(_mm512_load_ps(grad_pooled), share);
        const __m128i kept = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask));
        __m512 sum = _mm512_load_ps(bias_sums + o * kLanes);
        for (int p = 0; p < 4; ++p) {
          const __mmask16 takes = average
                                      ? _mm_test_epi8_mask(kept, _mm_set1_epi8(static_cast<char>(1 << p)))
                                      : _mm_cmpeq_epi8_mask(kept, _mm_set1_epi8(static_cast<char>(p + 1)));
          const __m512 value = _mm512_maskz_mov_ps(takes, grad);
          _mm512_store_ps(corner + (p / 2) * pitch + (p % 2) * pixel + o * kLanes, value);
          sum = _mm512_add_ps(sum, value);
        }
        _mm512_store_ps(bias_sums + o * kLanes, sum);
      }
    }
  }
}

/// T channels of the input's gradient at one position: only the taps that reach an output are walked.
template <int T>
void backward_input_tiles(const LaneConv& conv, const float* dy, const float* weight, float* dx) {
  const std::int64_t padded = round_up(conv.outputs, kOutputTile), out_h = conv.out_h(), out_w = conv.out_w();
  const std::int64_t tap_row = conv.kernel_w * padded * T;
  for (std::int64_t first = 0; first < conv.channels; first += T, weight += conv.kernel_h * tap_row) {
    const std::int64_t count = conv.channels - first < T ? conv.channels - first : T;
    for (std::int64_t h = 0; h < conv.height; ++h) {
      const std::int64_t top = h >= out_h ? h - out_h + 1 : 0;
      const std::int64_t bottom = h + 1 < conv.kernel_h ? h + 1 : conv.kernel_h;
      for (std::int64_t w = 0; w < conv.width; ++w) {
        const std::int64_t begin = w + 1 > conv.kernel_w ? w + 1 - conv.kernel_w : 0;
        const std::int64_t end = w + 1 < out_w ? w + 1 : out_w;
        const std::int64_t run = (end - begin) * padded;
        __m512 sums[T];
        for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_ps();
        for (std::int64_t kh = top; kh < bottom; ++kh) {
          const float* from = dy + ((h - kh) * out_w + begin) * padded * kLanes;
          const float* taps = weight + kh * tap_row + (begin - w + conv.kernel_w - 1) * padded * T;
          for (std::int64_t i = 0; i < run; ++i, taps += T) {
            const __m512 value = _mm512_load_ps(from + i * kLanes);
            for (int t = 0; t < T; ++t) sums[t] = _mm512_fmadd_ps(value, _mm512_set1_ps(taps[t]), sums[t]);
          }
        }
        float* to = dx + ((h * conv.width + w) * conv.channels + first) * kLanes;
        for (int t = 0; t < T; ++t) {
          if (t < count) _mm512_store_ps(to + t * kLanes, sums[t]);
        }
      }
    }
  }
}

/// Each 128-bit quarter of the result holds the sums of that quarter of a, b, c and d.
inline __m512 quarters(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d lower = _mm512_castps_pd(ab), upper = _mm512_castps_pd(cd);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(lower, upper)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(lower, upper)));
}

/// The 16 lane sums of 16 registers, in order.
inline __m512 sums_of(const __m512* v) {
  const __m512 q0 = quarters(v[0], v[1], v[2], v[3]), q1 = quarters(v[4], v[5], v[6], v[7]),
               q2 = quarters(v[8], v[9], v[10], v[11]), q3 = quarters(v[12], v[13], v[14], v[15]);
  const __m512 s01 = _mm512_add_ps(_mm512_shuffle_f32x4(q0, q1, 0x44), _mm512_shuffle_f32x4(q0, q1, 0xee));
  const __m512 s23 = _mm512_add_ps(_mm512_shuffle_f32x4(q2, q3, 0x44), _mm512_shuffle_f32x4(q2, q3, 0xee));
  return _mm512_add_ps(_mm512_shuffle_f32x4(s01, s23, 0x88), _mm512_shuffle_f32x4(s01, s23, 0xdd));
}

inline __m128 sums_of_four(const __m512* v) {
  const __m512 q = quarters(v[0], v[1], v[2], v[3]);
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(q), _mm512_extractf32x8_ps(q, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/// kTapTile taps of kOutputTile outputs, over all positions.
inline void weight_tile(const LaneConv& conv, const float* x, const float* dy, const std::int64_t* offsets,
                        float* dw) {
  constexpr int kTile = static_cast<int>(kTapTile * kOutputTile);
  static_assert(kTile == 20, "reduced as 16 and 4");
  const std::int64_t pixel = conv.channels * kLanes, padded = round_up(conv.outputs, kOutputTile) * kLanes;
  __m512 sums[kTile];
  for (int i = 0; i < kTile; ++i) sums[i] = _mm512_setzero_ps();
  for (std::int64_t oh = 0; oh < conv.out_h(); ++oh) {
    const float* row = x + oh * conv.width * pixel;
    for (std::int64_t ow = 0; ow < conv.out_w(); ++ow, row += pixel, dy += padded) {
      __m512 value[kTapTile];
      for (int j = 0; j < kTapTile; ++j) value[j] = _mm512_load_ps(row + offsets[j]);
      for (int i = 0; i < kOutputTile; ++i) {
        const __m512 grad = _mm512_load_ps(dy + i * kLanes);
        for (int j = 0; j < kTapTile; ++j) {
          sums[j * kOutputTile + i] = _mm512_fmadd_ps(value[j], grad, sums[j * kOutputTile + i]);
        }
      }
    }
  }
  _mm512_storeu_ps(dw, _mm512_add_ps(_mm512_loadu_ps(dw), sums_of(sums)));
  _mm_storeu_ps(dw + 16, _mm_add_ps(_mm_loadu_ps(dw + 16), sums_of_four(sums + 16)));
}

void backward_weight(const LaneConv& conv, const float* x, const float* dy, const std::int64_t* tap_offsets,
                     float* dw) {
  for (std::int64_t o = 0; o < conv.outputs; o += kOutputTile) {
    for (std::int64_t tap = 0; tap < conv.taps(); tap += kTapTile, dw += kTapTile * kOutputTile) {
      weight_tile(conv, x, dy + o * kLanes, tap_offsets + tap, dw);
    }
  }
}

#include "runtime/device/cpu/convolution/lane_tiles_impl.h"

}  // namespace

const LaneLoops kLaneLoops{to_lanes, from_lanes, forward, unpool, backward_input, backward_weight};

}  // namespace dtrain::cpu::avx512

DTRAIN_TARGET_END

#else

namespace dtrain::cpu::avx512 {

const LaneLoops kLaneLoops{};

}  // namespace dtrain::cpu::avx512

#endif
