// The loops of lane_conv.h in registers of fewer lanes than 16, of which there are 16 or more; included
// inside their namespace with their instructions switched on, and free of other headers' inline functions.
// `V` is a register of floats, `Words` one of as many integers, `Element` what the compiler has no operator
// for. In AVX-512 (lane_conv_avx512.cc) every lane goes through the same operations in the same order: with
// fused products and sums the bits are equal.

constexpr int kVector = sizeof(V) / sizeof(float);
constexpr int kParts = static_cast<int>(kLanes) / kVector;  ///< registers of 16 lanes

/// kVector values of 16 images at a time; the rest one by one.
void to_lanes(std::int64_t count, const float* from, std::int64_t pitch, float* to) {
  std::int64_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    for (int part = 0; part < kParts; ++part) {
      V rows[kVector];
#pragma GCC unroll 8
      for (int n = 0; n < kVector; ++n) rows[n] = Element::load(from + (part * kVector + n) * pitch + i);
      Element::transpose(rows);
#pragma GCC unroll 8
      for (int k = 0; k < kVector; ++k) Element::store(rows[k], to + (i + k) * kLanes + part * kVector);
    }
  }
  for (; i < count; ++i) {
    for (int n = 0; n < kLanes; ++n) to[i * kLanes + n] = from[n * pitch + i];
  }
}

void from_lanes(std::int64_t count, const float* from, float* to, std::int64_t pitch) {
  std::int64_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    for (int part = 0; part < kParts; ++part) {
      V rows[kVector];
#pragma GCC unroll 8
      for (int k = 0; k < kVector; ++k) rows[k] = Element::load(from + (i + k) * kLanes + part * kVector);
      Element::transpose(rows);
#pragma GCC unroll 8
      for (int n = 0; n < kVector; ++n) Element::store(rows[n], to + (part * kVector + n) * pitch + i);
    }
  }
  for (; i < count; ++i) {
    for (int n = 0; n < kLanes; ++n) to[n * pitch + i] = from[i * kLanes + n];
  }
}

constexpr int kPartsAtOnce = 2;  ///< by which each weight that is fetched is multiplied

/// sums [kOutputs][kPartsAtOnce] += `count` values in lanes times their weights of kOutputs channels of
/// `tile`.
template <int kOutputs>
inline void add_taps(std::int64_t count, const float* values, const float* weight, int tile,
                     V (&sums)[kOutputs][kPartsAtOnce]) {
  for (std::int64_t i = 0; i < count; ++i, values += kLanes, weight += tile) {
    const V first = Element::load(values), second = Element::load(values + kVector);
#pragma GCC unroll 6
    for (int o = 0; o < kOutputs; ++o) {
      const V word = Element::all(weight[o]);
      sums[o][0] = Element::multiply_add(first, word, sums[o][0]);
      sums[o][1] = Element::multiply_add(second, word, sums[o][1]);
    }
  }
}

/// T outputs at one position, after relu: y [T][16].
template <int T>
inline void one_position(const LaneConv& conv, const float* x, const float* weight, const float* bias,
                         float* y) {
  constexpr int kHalf = T / 2;
  const std::int64_t run = conv.kernel_w * conv.channels, pitch = conv.width * conv.channels * kLanes;
  for (int first = 0; first < T; first += kHalf) {
    for (int part = 0; part < kParts; part += kPartsAtOnce) {
      V sums[kHalf][kPartsAtOnce];
#pragma GCC unroll 6
      for (int o = 0; o < kHalf; ++o) sums[o][0] = sums[o][1] = Element::all(bias[first + o]);
      for (std::int64_t kh = 0; kh < conv.kernel_h; ++kh) {
        add_taps<kHalf>(run, x + kh * pitch + part * kVector, weight + kh * run * T + first, T, sums);
      }
      float* to = y + first * kLanes + part * kVector;
#pragma GCC unroll 6
      for (int o = 0; o < kHalf; ++o) {
        // As second operand a NaN survives the maximum.
        Element::store(V{} > sums[o][0] ? V{} : sums[o][0], to + o * kLanes);
        Element::store(V{} > sums[o][1] ? V{} : sums[o][1], to + o * kLanes + kVector);
      }
    }
  }
}

/// Pools four relu outputs and says in a word a lane which of them backward gives to.
inline V average_of(const V (&y)[4], Words& mask) {
  mask = Words{};
#pragma GCC unroll 4
  for (int p = 0; p < 4; ++p) mask |= ~Words(y[p] <= V{}) & Element::all_words(1 << p);  // NaN too
  return ((y[0] + y[1]) + (y[2] + y[3])) * Element::all(0.25F);
}

inline V largest_of(const V (&y)[4], Words& mask) {
  V best = y[0];
  Words place = Element::all_words(1);
#pragma GCC unroll 3
  for (int p = 1; p < 4; ++p) {
    const Words wins = Words(y[p] > best) | Words(y[p] != y[p]);  // larger, or NaN: a NaN wins and stays
    best = wins ? y[p] : best;
    place = wins ? Element::all_words(p + 1) : place;
  }
  mask = ~Words(best <= V{}) & place;
  return best;
}

template <int T>
void forward_tiles(const LaneConv& conv, const float* x, const float* weight, const float* bias,
                   float* pooled, std::uint8_t* mask) {
  alignas(64) float y[4 * T * kLanes];
  const std::int64_t pixel = conv.channels * kLanes, pitch = conv.width * pixel;
  for (std::int64_t first = 0; first < conv.outputs; first += T, weight += conv.taps() * T, bias += T) {
    const std::int64_t floats = (conv.outputs - first < T ? conv.outputs - first : T) * kLanes;
    for (std::int64_t ph = 0; ph < conv.pooled_h; ++ph) {
      for (std::int64_t pw = 0; pw < conv.pooled_w; ++pw) {
        const float* corner = x + 2 * ph * pitch + 2 * pw * pixel;
        for (int p = 0; p < 4; ++p) {
          one_position<T>(conv, corner + (p / 2) * pitch + (p % 2) * pixel, weight, bias, y + p * T * kLanes);
        }
        const std::int64_t at = ((ph * conv.pooled_w + pw) * conv.outputs + first) * kLanes;
        for (std::int64_t i = 0; i < floats; i += kVector) {
          V window[4];
#pragma GCC unroll 4
          for (int p = 0; p < 4; ++p) window[p] = Element::load(y + p * T * kLanes + i);
          Words kept;
          const V value = conv.kind == PoolKind::avg ? average_of(window, kept) : largest_of(window, kept);
          Element::store(value, pooled + at + i);
          if (mask != nullptr) Element::store_bytes(kept, mask + at + i);
        }
      }
    }
  }
}

void unpool(const LaneConv& conv, const float* grad_pooled, const std::uint8_t* mask, float* dy,
            float* bias_sums) {
  const std::int64_t pixel = round_up(conv.outputs, kOutputTile) * kLanes, pitch = conv.out_w() * pixel;
  const bool average = conv.kind == PoolKind::avg;
  const V share = Element::all(average ? 0.25F : 1.0F);
  const std::int64_t floats = conv.outputs * kLanes;
  for (std::int64_t ph = 0; ph < conv.pooled_h; ++ph) {
    for (std::int64_t pw = 0; pw < conv.pooled_w; ++pw, grad_pooled += floats, mask += floats) {
      float* corner = dy + 2 * ph * pitch + 2 * pw * pixel;
      for (std::int64_t i = 0; i < floats; i += kVector) {
        const V grad = Element::load(grad_pooled + i) * share;
        const Words kept = Element::load_bytes(mask + i);
        V sum = Element::load(bias_sums + i);
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
          const Words takes = average ? Words((kept & Element::all_words(1 << p)) != Words{})
                                      : Words(kept == Element::all_words(p + 1));
          const V value = V(takes & Words(grad));
          Element::store(value, corner + (p / 2) * pitch + (p % 2) * pixel + i);
          sum += value;
        }
        Element::store(sum, bias_sums + i);
      }
    }
  }
}

/// T channels of the input's gradient at one position: only the taps that reach an output are walked.
template <int T>
void backward_input_tiles(const LaneConv& conv, const float* dy, const float* weight, float* dx) {
  constexpr int kHalf = T / 2;
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
        const float* taps = weight + (begin - w + conv.kernel_w - 1) * padded * T;
        float* to = dx + ((h * conv.width + w) * conv.channels + first) * kLanes;
        for (int half = 0; half < T; half += kHalf) {
          for (int part = 0; part < kParts; part += kPartsAtOnce) {
            V sums[kHalf][kPartsAtOnce] = {};
            for (std::int64_t kh = top; kh < bottom; ++kh) {
              add_taps<kHalf>((end - begin) * padded,
                              dy + ((h - kh) * out_w + begin) * padded * kLanes + part * kVector,
                              taps + kh * tap_row + half, T, sums);
            }
#pragma GCC unroll 6
            for (int c = 0; c < kHalf; ++c) {
              if (half + c >= count) continue;
              Element::store(sums[c][0], to + (half + c) * kLanes + part * kVector);
              Element::store(sums[c][1], to + (half + c) * kLanes + (part + 1) * kVector);
            }
          }
        }
      }
    }
  }
}

constexpr int kOutputs = static_cast<int>(kOutputTile), kTile = static_cast<int>(kTapTile) * kOutputs;
constexpr int kTapsAtOnce = 2;    ///< whose sums of kOutputs outputs fit in registers
constexpr int kTilesAtOnce = 16;  ///< of taps, that read the same gradients
static_assert(kTapTile % kTapsAtOnce == 0 && kTile % 4 == 0);

/// Gradients of kOutputs outputs at some positions, one behind the other. With what two taps read of the
/// input they fill a common first-level cache, in which they would meet where they lie.
struct Gradients {
  static constexpr std::int64_t kPositions = 64;

  void gather(const float* dy, std::int64_t pitch, std::int64_t first, std::int64_t positions) {
    count = positions;
    for (std::int64_t n = 0; n < positions; ++n) {
      const float* from = dy + (first + n) * pitch;
      for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 5
        for (int i = 0; i < kOutputs; ++i)
          values[part][n * kOutputs + i] = Element::load(from + i * kLanes + part * kVector);
      }
    }
  }

  std::int64_t count = 0;
  V values[kParts][kPositions * kOutputs];
};

/// sums [tap][output] += what kTapsAtOnce taps and the gradients from position `first` on give.
inline void add_positions(const LaneConv& conv, const float* x, const std::int64_t* offsets,
                          std::int64_t first, const V* gradient, std::int64_t count, V* to) {
  const std::int64_t pixel = conv.channels * kLanes, out_w = conv.out_w();
  V sums[kTapsAtOnce][kOutputs];
#pragma GCC unroll 5
  for (int i = 0; i < kOutputs; ++i) {
    sums[0][i] = to[i];
    sums[1][i] = to[kOutputs + i];
  }
  std::int64_t row = first / out_w, column = first % out_w;
  while (count > 0) {
    const float* left = x + (row * conv.width + column) * pixel + offsets[0];
    const float* right = left + (offsets[1] - offsets[0]);
    const std::int64_t run = out_w - column < count ? out_w - column : count;
    for (std::int64_t n = 0; n < run; ++n, left += pixel, right += pixel, gradient += kOutputs) {
      const V a = Element::load(left), b = Element::load(right);
#pragma GCC unroll 5
      for (int i = 0; i < kOutputs; ++i) {
        const V grad = Element::load_once(gradient[i]);
        sums[0][i] = Element::multiply_add(a, grad, sums[0][i]);
        sums[1][i] = Element::multiply_add(b, grad, sums[1][i]);
      }
    }
    count -= run;
    ++row;
    column = 0;
  }
#pragma GCC unroll 5
  for (int i = 0; i < kOutputs; ++i) {
    to[i] = sums[0][i];
    to[kOutputs + i] = sums[1][i];
  }
}

/// `tiles` of kTapTile taps, of kOutputs outputs from `dy` on: over the positions in their order.
inline void weight_tiles(const LaneConv& conv, const float* x, const float* dy, const std::int64_t* offsets,
                         std::int64_t tiles, float* dw) {
  const std::int64_t positions = conv.out_h() * conv.out_w(),
                     pitch = round_up(conv.outputs, kOutputTile) * kLanes;
  V sums[kTilesAtOnce][kParts][kTile] = {};
  Gradients gradients;
  for (std::int64_t first = 0; first < positions; first += Gradients::kPositions) {
    const std::int64_t left = positions - first;
    gradients.gather(dy, pitch, first, left < Gradients::kPositions ? left : Gradients::kPositions);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      for (int tap = 0; tap < kTapTile; tap += kTapsAtOnce) {
        for (int part = 0; part < kParts; ++part) {
          add_positions(conv, x + part * kVector, offsets + tile * kTapTile + tap, first,
                        gradients.values[part], gradients.count, sums[tile][part] + tap * kOutputs);
        }
      }
    }
  }
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    for (int i = 0; i < kTile; i += 4) Element::add_lanes(sums[tile][0] + i, kTile, dw + tile * kTile + i);
  }
}

void backward_weight(const LaneConv& conv, const float* x, const float* dy, const std::int64_t* tap_offsets,
                     float* dw) {
  const std::int64_t tiles = round_up(conv.taps(), kTapTile) / kTapTile;
  for (std::int64_t o = 0; o < conv.outputs; o += kOutputTile) {
    for (std::int64_t first = 0; first < tiles; first += kTilesAtOnce) {
      const std::int64_t count = tiles - first < kTilesAtOnce ? tiles - first : kTilesAtOnce;
      weight_tiles(conv, x, dy + o * kLanes, tap_offsets + first * kTapTile, count, dw);
      dw += count * kTile;
    }
  }
}

#include "runtime/device/cpu/convolution/lane_tiles_impl.h"
