// The loops of winograd_loops.h for one `Element`; included inside its namespace with AVX-512 switched on,
// and free of other headers' inline functions.

// Each line is one dimension of a transform of Lavin and Gray's F(2 x 2, 3 x 3): kIn values `step` apart
// become kOut values.
struct InputLine {
  static constexpr int kIn = 4, kOut = 4;
  static void run(const __m512* x, int step, __m512* y, int to_step) {
    y[0] = _mm512_sub_ps(x[0], x[2 * step]);
    y[to_step] = _mm512_add_ps(x[step], x[2 * step]);
    y[2 * to_step] = _mm512_sub_ps(x[2 * step], x[step]);
    y[3 * to_step] = _mm512_sub_ps(x[step], x[3 * step]);
  }
};

struct OutputLine {
  static constexpr int kIn = 4, kOut = 2;
  static void run(const __m512* x, int step, __m512* y, int to_step) {
    y[0] = _mm512_add_ps(_mm512_add_ps(x[0], x[step]), x[2 * step]);
    y[to_step] = _mm512_sub_ps(_mm512_sub_ps(x[step], x[2 * step]), x[3 * step]);
  }
};

struct GradientLine {
  static constexpr int kIn = 2, kOut = 4;
  static void run(const __m512* x, int step, __m512* y, int to_step) {
    y[0] = x[0];
    y[to_step] = _mm512_add_ps(x[0], x[step]);
    y[2 * to_step] = _mm512_sub_ps(x[0], x[step]);
    y[3 * to_step] = _mm512_sub_ps(_mm512_setzero_ps(), x[step]);
  }
};

struct FilterLine {
  static constexpr int kIn = 3, kOut = 4;
  static void run(const __m512* x, int step, __m512* y, int to_step) {
    const __m512 half = _mm512_set1_ps(0.5F);
    const __m512 ends = _mm512_add_ps(x[0], x[2 * step]);
    y[0] = x[0];
    y[to_step] = _mm512_mul_ps(half, _mm512_add_ps(ends, x[step]));
    y[2 * to_step] = _mm512_mul_ps(half, _mm512_sub_ps(ends, x[step]));
    y[3 * to_step] = x[2 * step];
  }
};

struct FilterGradientLine {
  static constexpr int kIn = 4, kOut = 3;
  static void run(const __m512* x, int step, __m512* y, int to_step) {
    const __m512 half = _mm512_set1_ps(0.5F);
    const __m512 mean = _mm512_mul_ps(half, _mm512_add_ps(x[step], x[2 * step]));
    y[0] = _mm512_add_ps(x[0], mean);
    y[to_step] = _mm512_mul_ps(half, _mm512_sub_ps(x[step], x[2 * step]));
    y[2 * to_step] = _mm512_add_ps(mean, x[3 * step]);
  }
};

constexpr int kVector = 16;

/// from [kIn][kIn] → to [kOut][kOut].
template <class Line>
inline void transform(const __m512* from, __m512* to) {
  __m512 half[Line::kOut * Line::kIn];
#pragma GCC unroll 4
  for (int j = 0; j < Line::kIn; ++j) Line::run(from + j, Line::kIn, half + j, Line::kIn);
#pragma GCC unroll 4
  for (int i = 0; i < Line::kOut; ++i) Line::run(half + i * Line::kIn, 1, to + i * Line::kOut, 1);
}

template <class Line>
inline void transform_tile(const void* const* pixels, std::int64_t channel, __m512* to) {
  constexpr int kPixels = Line::kIn * Line::kIn;
  __m512 x[kPixels];
#pragma GCC unroll 16
  for (int i = 0; i < kPixels; ++i) {
    x[i] = Element::load(static_cast<const Element::Stored*>(pixels[i]) + channel);
  }
  transform<Line>(x, to);
}

void input(std::int64_t tiles, std::int64_t channels, const void* const* pixels, const TapWords& to) {
  for (std::int64_t t = 0; t < tiles; ++t, pixels += kTilePixels) {
    for (std::int64_t c = 0; c < channels; c += kVector) {
      __m512 v[kTaps];
      transform_tile<InputLine>(pixels, c, v);
#pragma GCC unroll 16
      for (int tap = 0; tap < kTaps; ++tap) {
        Element::store(v[tap], reinterpret_cast<Element::Stored*>(to.at(tap, t)) + c);
      }
    }
  }
}

template <class Line, bool kSums>
void across(std::int64_t tiles, std::int64_t channels, const void* const* pixels, const TapWords& to,
            float* sums) {
  constexpr int kPixels = Line::kIn * Line::kIn, kCentre = 5;  // A g Aᵀ has the sum of g there
  for (std::int64_t t = 0; t < tiles; t += Element::kPack, pixels += Element::kPack * kPixels) {
    for (std::int64_t c = 0; c < channels; c += kVector) {
      __m512 v[Element::kPack][kTaps];
      for (int p = 0; p < Element::kPack; ++p) {
        transform_tile<Line>(pixels + p * kPixels, c, v[p]);
        if constexpr (kSums) {
          _mm512_storeu_ps(sums + c, _mm512_add_ps(_mm512_loadu_ps(sums + c), v[p][kCentre]));
        }
      }
#pragma GCC unroll 16
      for (int tap = 0; tap < kTaps; ++tap) {
        _mm512_storeu_ps(to.at(tap, t / Element::kPack) + c,
                         Element::word(v[0][tap], v[Element::kPack - 1][tap]));
      }
    }
  }
}

void input_across(std::int64_t tiles, std::int64_t channels, const void* const* pixels, const TapWords& to) {
  across<InputLine, false>(tiles, channels, pixels, to, nullptr);
}

void gradient_across(std::int64_t tiles, std::int64_t channels, const void* const* pixels, const TapWords& to,
                     float* sums) {
  across<GradientLine, true>(tiles, channels, pixels, to, sums);
}

void output(std::int64_t tiles, std::int64_t channels, const TapWords& from, const float* bias,
            void* const* pixels) {
  for (std::int64_t t = 0; t < tiles; ++t, pixels += kOutputPixels) {
    for (std::int64_t c = 0; c < channels; c += kVector) {
      __m512 m[kTaps], y[kOutputPixels];
#pragma GCC unroll 16
      for (int tap = 0; tap < kTaps; ++tap) m[tap] = _mm512_loadu_ps(from.at(tap, t) + c);
      transform<OutputLine>(m, y);
      const __m512 shift = bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(bias + c);
      for (int i = 0; i < kOutputPixels; ++i) {
        if (pixels[i] == nullptr) continue;
        Element::store(_mm512_add_ps(y[i], shift), static_cast<Element::Stored*>(pixels[i]) + c);
      }
    }
  }
}

/// Rows become columns. Inlined, so that what the caller leaves out costs nothing.
inline void transpose(const __m512* from, __m512* to) {
  __m512 pairs[kVector], fours[kVector];
#pragma GCC unroll 8
  for (int i = 0; i < kVector; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(from[i], from[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(from[i], from[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVector; i += 4) {
    fours[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    fours[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  // fours[4 i + j] has columns j, 4 + j, 8 + j, 12 + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 even_low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
    const __m512 even_high = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
    const __m512 odd_high = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
    to[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    to[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    to[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    to[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

constexpr int kCells = 9;  // of a filter: 3 x 3
constexpr __mmask16 kTheCells = (1U << kCells) - 1;

inline __m512 load_cells(const float* from) { return _mm512_maskz_loadu_ps(kTheCells, from); }
inline __m512 load_cells(const std::uint16_t* from) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kTheCells, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
inline void store_cells(__m512 cells, float* to) {
  _mm256_storeu_ps(to, _mm512_castps512_ps256(cells));
  _mm_store_ss(to + 8, _mm512_extractf32x4_ps(cells, 2));
}

/// 16 lanes of `words` words of depth, from the filters at `from`.
template <class Weight>
inline void filter_words(const FilterOrder& order, const Weight* from, float* to, std::int64_t tap_pitch) {
  __m512 u[Element::kPack][kTaps];
#pragma GCC unroll 2
  for (int p = 0; p < Element::kPack; ++p) {
    __m512 filters[kVector], cells[kVector], w[kCells];
#pragma GCC unroll 16
    for (int l = 0; l < kVector; ++l) {
      filters[l] = load_cells(from + l * order.lane_stride + p * order.depth_stride);
    }
    transpose(filters, cells);
#pragma GCC unroll 9
    for (int i = 0; i < kCells; ++i) w[i] = cells[order.flipped ? kCells - 1 - i : i];
    transform<FilterLine>(w, u[p]);
  }
#pragma GCC unroll 16
  for (int tap = 0; tap < kTaps; ++tap) {
    _mm512_storeu_ps(to + tap * tap_pitch, Element::word(u[0][tap], u[Element::kPack - 1][tap]));
  }
}

template <class Weight>
void filter_from(const FilterOrder& order, const Weight* weight, float* to, std::int64_t tap_pitch) {
  const std::int64_t words = order.depth / Element::kPack;
  for (std::int64_t lane = 0; lane < order.lanes; lane += kProductWidth) {
    for (std::int64_t d = 0; d < words; ++d, to += kProductWidth) {
      const Weight* from = weight + lane * order.lane_stride + d * Element::kPack * order.depth_stride;
      filter_words(order, from, to, tap_pitch);
      filter_words(order, from + kVector * order.lane_stride, to + kVector, tap_pitch);
    }
  }
}

void filter(const FilterOrder& order, const void* weight, DType dtype, float* to, std::int64_t tap_pitch) {
  if (dtype == DType::bf16)
    return filter_from(order, static_cast<const std::uint16_t*>(weight), to, tap_pitch);
  filter_from(order, static_cast<const float*>(weight), to, tap_pitch);
}

void filter_gradient(const FilterOrder& order, const TapWords& from, float* weight) {
  constexpr std::int64_t kLanes = 32;  // a few lines of each row of sums at a time
  for (std::int64_t block = 0; block < order.lanes; block += kLanes) {
    for (std::int64_t d = 0; d < order.depth; ++d) {
      for (std::int64_t lane = block; lane < block + kLanes; lane += kVector) {
        __m512 p[kTaps], w[kVector], filters[kVector];
#pragma GCC unroll 16
        for (int tap = 0; tap < kTaps; ++tap) p[tap] = _mm512_loadu_ps(from.at(tap, d) + lane);
        transform<FilterGradientLine>(p, w);
#pragma GCC unroll 7
        for (int i = kCells; i < kVector; ++i) w[i] = _mm512_setzero_ps();
        transpose(w, filters);
        float* to = weight + lane * order.lane_stride + d * order.depth_stride;
#pragma GCC unroll 16
        for (int l = 0; l < kVector; ++l) store_cells(filters[l], to + l * order.lane_stride);
      }
    }
  }
}

void product(std::int64_t rows, std::int64_t depth, std::int64_t width, const float* a, std::int64_t a_pitch,
             const float* b, float* c, std::int64_t c_pitch) {
  for (std::int64_t column = 0; column < width; column += kProductWidth, b += depth * kProductWidth) {
    for (std::int64_t row = 0; row < rows; row += kProductRows) {
      __m512 sum[kProductRows][2];
#pragma GCC unroll 14
      for (int r = 0; r < kProductRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
      const float* left = a + row * a_pitch;
      for (std::int64_t d = 0; d < depth; ++d) {
        const __m512 right0 = _mm512_loadu_ps(b + d * kProductWidth);
        const __m512 right1 = _mm512_loadu_ps(b + d * kProductWidth + kVector);
#pragma GCC unroll 14
        for (int r = 0; r < kProductRows; ++r) {
          const __m512 word = _mm512_set1_ps(left[r * a_pitch + d]);
          sum[r][0] = Element::multiply_add(word, right0, sum[r][0]);
          sum[r][1] = Element::multiply_add(word, right1, sum[r][1]);
        }
      }
      float* to = c + row * c_pitch + column;
#pragma GCC unroll 14
      for (int r = 0; r < kProductRows; ++r) {
        _mm512_storeu_ps(to + r * c_pitch, sum[r][0]);
        _mm512_storeu_ps(to + r * c_pitch + kVector, sum[r][1]);
      }
    }
  }
}

void add_product(std::int64_t rows, std::int64_t depth, std::int64_t width, const float* a,
                 std::int64_t a_pitch, const float* b, std::int64_t b_pitch, float* c, std::int64_t c_pitch) {
  for (std::int64_t column = 0; column < width; column += kProductWidth) {
    for (std::int64_t row = 0; row < rows; row += kGradientRows) {
      float* to = c + row * c_pitch + column;
      __m512 sum[kGradientRows][2];
#pragma GCC unroll 8
      for (int r = 0; r < kGradientRows; ++r) {
        sum[r][0] = _mm512_loadu_ps(to + r * c_pitch);
        sum[r][1] = _mm512_loadu_ps(to + r * c_pitch + kVector);
      }
      for (std::int64_t d = 0; d < depth; ++d) {
        const __m512 right0 = _mm512_loadu_ps(b + d * b_pitch + column);
        const __m512 right1 = _mm512_loadu_ps(b + d * b_pitch + column + kVector);
#pragma GCC unroll 8
        for (int r = 0; r < kGradientRows; ++r) {
          const __m512 word = _mm512_set1_ps(a[d * a_pitch + row + r]);
          sum[r][0] = Element::multiply_add(word, right0, sum[r][0]);
          sum[r][1] = Element::multiply_add(word, right1, sum[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kGradientRows; ++r) {
        _mm512_storeu_ps(to + r * c_pitch, sum[r][0]);
        _mm512_storeu_ps(to + r * c_pitch + kVector, sum[r][1]);
      }
    }
  }
}

const WinogradLoops kLoops{Element::kPack, input,           input_across, gradient_across, output,
                           filter,         filter_gradient, product,      add_product};
