// The loops of winograd_loops.h for one `Element`, whose vectors are `V`; included inside its namespace with
// its instructions switched on, and free of other headers' inline functions.

constexpr int kVector = sizeof(V) / sizeof(float);
constexpr int kProductVectors = 2;  ///< of a row of a product in registers
constexpr std::int64_t kWidth = kProductVectors * kVector;
/// Terms that are added up one by one before they join what was added up before: of so many sums of so many
/// terms each, the error is a part of that of one sum of all.
constexpr std::int64_t kSumTerms = 64;

/// from [kIn][kIn] → to [kOut][kOut].
template <class Line>
inline void transform(const V* from, V* to) {
  V half[Line::kOut * Line::kIn];
#pragma GCC unroll 8
  for (int j = 0; j < Line::kIn; ++j) Line::run(from + j, Line::kIn, half + j, Line::kIn);
#pragma GCC unroll 8
  for (int i = 0; i < Line::kOut; ++i) Line::run(half + i * Line::kIn, 1, to + i * Line::kOut, 1);
}

template <class Line>
inline void load_tile(const void* const* pixels, std::int64_t channel, V* x) {
#pragma GCC unroll 36
  for (int i = 0; i < Line::kIn * Line::kIn; ++i)
    x[i] = Element::load(static_cast<const Element::Stored*>(pixels[i]) + channel);
}

/// Asks for the cache lines of `kCount` pixels that the next tile reads from `channel` on, once a line. They
/// lie apart, and a tile keeps the processor busy for longer than it looks ahead: nothing else would ask in
/// time.
template <int kCount>
inline void prefetch_tile(const void* const* pixels, std::int64_t channel) {
  constexpr std::int64_t kLine = 64 / sizeof(Element::Stored);
  if (channel % kLine != 0) return;
#pragma GCC unroll 36
  for (int i = 0; i < kCount; ++i)
    __builtin_prefetch(static_cast<const Element::Stored*>(pixels[i]) + channel);
}

template <class Tile>
struct Loops {
  static constexpr int kWindow = Tile::kWindow, kTaps = kWindow * kWindow,
                       kPixels = Tile::kTile * Tile::kTile;

  static void input(std::int64_t tiles, std::int64_t channels, const void* const* pixels,
                    const TapWords& to) {
    for (std::int64_t t = 0; t < tiles; ++t, pixels += kTaps) {
      for (std::int64_t c = 0; c < channels; c += kVector) {
        if (t + 1 < tiles) prefetch_tile<kTaps>(pixels + kTaps, c);
        V x[kTaps], v[kTaps];
        load_tile<typename Tile::Input>(pixels, c, x);
        transform<typename Tile::Input>(x, v);
#pragma GCC unroll 36
        for (int tap = 0; tap < kTaps; ++tap)
          Element::store(v[tap], reinterpret_cast<Element::Stored*>(to.at(tap, t)) + c);
      }
    }
  }

  /// The sum of a tile's gradients, of which the transform may have a copy.
  static V sum_of(const V* x, const V* transformed) {
    if constexpr (Tile::kSumTap >= 0) {
      return transformed[Tile::kSumTap];
    } else {
      V sums[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] = (x[4 * i] + x[4 * i + 1]) + (x[4 * i + 2] + x[4 * i + 3]);
      return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  }

  template <class Line, bool kSums>
  static void across(std::int64_t tiles, std::int64_t channels, const void* const* pixels, const TapWords& to,
                     float* sums) {
    constexpr int kIn = Line::kIn * Line::kIn, kPack = Element::kPack;
    for (std::int64_t t = 0; t < tiles; t += kPack, pixels += kPack * kIn) {
      for (std::int64_t c = 0; c < channels; c += kVector) {
        if (t + kPack < tiles) prefetch_tile<kPack * kIn>(pixels + kPack * kIn, c);
        V v[kPack][kTaps];
        for (int p = 0; p < kPack; ++p) {
          V x[kIn];
          load_tile<Line>(pixels + p * kIn, c, x);
          transform<Line>(x, v[p]);
          if constexpr (kSums) Element::store_word(Element::load_word(sums + c) + sum_of(x, v[p]), sums + c);
        }
#pragma GCC unroll 36
        for (int tap = 0; tap < kTaps; ++tap)
          Element::store_word(Element::word(v[0][tap], v[kPack - 1][tap]), to.at(tap, t / kPack) + c);
      }
    }
  }

  static void input_across(std::int64_t tiles, std::int64_t channels, const void* const* pixels,
                           const TapWords& to) {
    across<typename Tile::Input, false>(tiles, channels, pixels, to, nullptr);
  }

  static void gradient_across(std::int64_t tiles, std::int64_t channels, const void* const* pixels,
                              const TapWords& to, float* sums) {
    across<typename Tile::Gradient, true>(tiles, channels, pixels, to, sums);
  }

  static void output(std::int64_t tiles, std::int64_t channels, const TapWords& from, const float* bias,
                     void* const* pixels) {
    for (std::int64_t t = 0; t < tiles; ++t, pixels += kPixels) {
      for (std::int64_t c = 0; c < channels; c += kVector) {
        V m[kTaps], y[kPixels];
#pragma GCC unroll 36
        for (int tap = 0; tap < kTaps; ++tap) m[tap] = Element::load_word(from.at(tap, t) + c);
        transform<typename Tile::Output>(m, y);
        const V shift = bias == nullptr ? V{} : Element::load_word(bias + c);
#pragma GCC unroll 16
        for (int i = 0; i < kPixels; ++i) {
          if (pixels[i] != nullptr)
            Element::store(y[i] + shift, static_cast<Element::Stored*>(pixels[i]) + c);
        }
      }
    }
  }

  /// One vector of lanes and one word of depth, from the filters at `from`.
  template <class Weight>
  static void filter_words(const FilterOrder& order, const Weight* from, float* to, std::int64_t tap_pitch) {
    V u[Element::kPack][kTaps];
#pragma GCC unroll 2
    for (int p = 0; p < Element::kPack; ++p) {
      V cells[kCells], w[kCells];
      load_filters(from + p * order.depth_stride, order.lane_stride, cells);
#pragma GCC unroll 9
      for (int i = 0; i < kCells; ++i) w[i] = cells[order.flipped ? kCells - 1 - i : i];
      transform<typename Tile::Filter>(w, u[p]);
    }
#pragma GCC unroll 36
    for (int tap = 0; tap < kTaps; ++tap)
      Element::store_word(Element::word(u[0][tap], u[Element::kPack - 1][tap]), to + tap * tap_pitch);
  }

  template <class Weight>
  static void filter_from(const FilterOrder& order, const Weight* weight, float* to, std::int64_t tap_pitch) {
    constexpr std::int64_t kAhead = 8;  // words whose filters are on their way
    const std::int64_t words = order.depth / Element::kPack, step = Element::kPack * order.depth_stride;
    for (std::int64_t lane = 0; lane < order.lanes; lane += kWidth) {
      for (std::int64_t d = 0; d < words; ++d, to += kWidth) {
        const Weight* from = weight + lane * order.lane_stride + d * step;
        for (int p = 0; p < Element::kPack; ++p) {
          for (int i = 0; i < kWidth; ++i)
            __builtin_prefetch(from + kAhead * step + p * order.depth_stride + i * order.lane_stride);
        }
        for (int i = 0; i < kProductVectors; ++i)
          filter_words(order, from + i * kVector * order.lane_stride, to + i * kVector, tap_pitch);
      }
    }
  }

  static void filter(const FilterOrder& order, const void* weight, DType dtype, float* to,
                     std::int64_t tap_pitch) {
    if (dtype == DType::bf16)
      return filter_from(order, static_cast<const std::uint16_t*>(weight), to, tap_pitch);
    filter_from(order, static_cast<const float*>(weight), to, tap_pitch);
  }

  static void filter_gradient(const FilterOrder& order, const TapWords& from, float* weight) {
    constexpr std::int64_t kLanes = 32;  // a few lines of each row of sums at a time
    for (std::int64_t block = 0; block < order.lanes; block += kLanes) {
      for (std::int64_t d = 0; d < order.depth; ++d) {
        for (std::int64_t lane = block; lane < block + kLanes; lane += kVector) {
          V p[kTaps], w[kCells];
#pragma GCC unroll 36
          for (int tap = 0; tap < kTaps; ++tap) p[tap] = Element::load_word(from.at(tap, d) + lane);
          transform<typename Tile::FilterGradient>(p, w);
          store_filters(w, weight + lane * order.lane_stride + d * order.depth_stride, order.lane_stride);
        }
      }
    }
  }
};

/// kRows rows and kWidth columns of a product, `depth` terms: into sums that are all 0 first.
template <int kRows>
inline void add_terms(std::int64_t depth, const float* a, std::int64_t row_step, std::int64_t term_step,
                      const float* b, std::int64_t b_pitch, V (&sum)[kRows][kProductVectors]) {
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = V{};
  for (std::int64_t d = 0; d < depth; ++d, a += term_step, b += b_pitch) {
    const V right0 = Element::load_word(b), right1 = Element::load_word(b + kVector);
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const V word = Element::all(a[r * row_step]);
      sum[r][0] = Element::multiply_add(word, right0, sum[r][0]);
      sum[r][1] = Element::multiply_add(word, right1, sum[r][1]);
    }
  }
}

template <int kRows>
inline void store_terms(const V (&sum)[kRows][kProductVectors], bool add, float* to, std::int64_t pitch) {
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r, to += pitch) {
    Element::store_word(add ? Element::load_word(to) + sum[r][0] : sum[r][0], to);
    Element::store_word(add ? Element::load_word(to + kVector) + sum[r][1] : sum[r][1], to + kVector);
  }
}

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

void product(std::int64_t rows, std::int64_t depth, std::int64_t width, const float* a, std::int64_t a_pitch,
             const float* b, float* c, std::int64_t c_pitch) {
  for (std::int64_t column = 0; column < width; column += kWidth, b += depth * kWidth) {
    for (std::int64_t row = 0; row < rows; row += Element::kProductRows) {
      for (std::int64_t d = 0; d < depth; d += kSumTerms) {
        V sum[Element::kProductRows][kProductVectors];
        add_terms(least(kSumTerms, depth - d), a + row * a_pitch + d, a_pitch, 1, b + d * kWidth, kWidth,
                  sum);
        store_terms(sum, d != 0, c + row * c_pitch + column, c_pitch);
      }
    }
  }
}

void add_product(std::int64_t rows, std::int64_t depth, std::int64_t width, const float* a,
                 std::int64_t a_pitch, const float* b, std::int64_t b_pitch, float* c, std::int64_t c_pitch) {
  for (std::int64_t column = 0; column < width; column += kWidth) {
    for (std::int64_t row = 0; row < rows; row += Element::kGradientRows) {
      for (std::int64_t d = 0; d < depth; d += kSumTerms) {
        V sum[Element::kGradientRows][kProductVectors];
        add_terms(least(kSumTerms, depth - d), a + d * a_pitch + row, 1, a_pitch, b + d * b_pitch + column,
                  b_pitch, sum);
        store_terms(sum, true, c + row * c_pitch + column, c_pitch);
      }
    }
  }
}

template <class Tile>
constexpr WinogradLoops loops_of() {
  using L = Loops<Tile>;
  return {Element::kPack,         Tile::kTile, Element::kProductRows,
          Element::kGradientRows, L::input,    L::input_across,
          L::gradient_across,     L::output,   L::filter,
          L::filter_gradient,     product,     add_product};
}
