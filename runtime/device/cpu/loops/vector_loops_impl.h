// The loops of vector_loops.h, written for the compiler to vectorise. Included once per instruction set
// inside that set's namespace, after its target pragma: it must not use inline functions of other headers,
// which the linker would share between the sets.

namespace {

template <PoolMode kMode>
inline constexpr bool kHasMask = kMode != PoolMode::avg&& kMode != PoolMode::max;

inline void clear(std::int64_t n, float* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = 0.0F;
}

/// Whether a gradient passes the relu that gave x: so does one of NaN.
inline bool passes(float x) { return !(x <= 0.0F); }
/// `from` replaces `best` where it is larger or NaN, so that NaN wins and stays. Written as two selects,
/// since loops with a short-circuit are not vectorised.
inline void keep_larger(float from, int from_place, float& best, int& place) {
  place = from > best ? from_place : place;
  best = from > best ? from : best;
  place = from != from ? from_place : place;
  best = from != from ? from : best;
}

/// Adds one window element to the running output.
template <PoolMode kMode>
void take(std::int64_t n, const float* in, std::uint8_t place, bool first, float* out, std::uint8_t* mask) {
  if constexpr (kMode == PoolMode::avg || kMode == PoolMode::avg_relu) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = first ? in[i] : out[i] + in[i];
    if constexpr (kMode == PoolMode::avg_relu) {
      for (std::int64_t i = 0; i < n; ++i) {
        const auto bit = static_cast<std::uint8_t>(passes(in[i]) ? 1U << place : 0U);
        mask[i] = static_cast<std::uint8_t>(first ? bit : mask[i] | bit);
      }
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      float best = first ? in[i] : out[i];
      int winner = place;
      if constexpr (kHasMask<kMode>) winner = first ? place : mask[i];
      keep_larger(in[i], place, best, winner);
      out[i] = best;
      if constexpr (kHasMask<kMode>) mask[i] = static_cast<std::uint8_t>(winner);
    }
  }
}

template <PoolMode kMode>
void finish(std::int64_t n, float share, float* out, [[maybe_unused]] std::uint8_t* mask) {
  if constexpr (kMode == PoolMode::avg || kMode == PoolMode::avg_relu) {
    for (std::int64_t i = 0; i < n; ++i) out[i] *= share;
  }
  if constexpr (kMode == PoolMode::max_relu) {
    for (std::int64_t i = 0; i < n; ++i) {
      mask[i] = static_cast<std::uint8_t>(passes(out[i]) ? mask[i] + 1 : 0);
    }
  }
}

/// The whole 2x2 window in one pass: the commonest by far.
template <PoolMode kMode>
void pool_2x2(std::int64_t n, const float* __restrict top, const float* __restrict bottom, float share,
              float* __restrict out, [[maybe_unused]] std::uint8_t* __restrict mask) {
  const float* __restrict top_right = top + n;
  const float* __restrict bottom_right = bottom + n;
  for (std::int64_t i = 0; i < n; ++i) {
    const float a = top[i], b = top_right[i], c = bottom[i], d = bottom_right[i];
    if constexpr (kMode == PoolMode::avg || kMode == PoolMode::avg_relu) {
      out[i] = (a + b + c + d) * share;
      if constexpr (kMode == PoolMode::avg_relu) {
        const int bits =
            (passes(a) ? 1 : 0) | (passes(b) ? 2 : 0) | (passes(c) ? 4 : 0) | (passes(d) ? 8 : 0);
        mask[i] = static_cast<std::uint8_t>(bits);
      }
    } else {
      float best = a;
      int place = 0;
      keep_larger(b, 1, best, place);
      keep_larger(c, 2, best, place);
      keep_larger(d, 3, best, place);
      out[i] = best;
      if constexpr (kMode == PoolMode::max_places) mask[i] = static_cast<std::uint8_t>(place);
      if constexpr (kMode == PoolMode::max_relu) {
        mask[i] = static_cast<std::uint8_t>(passes(best) ? place + 1 : 0);
      }
    }
  }
}

template <PoolMode kMode>
void pool_row(const PoolRow& row, const float* in, float* out, std::uint8_t* mask) {
  const std::int64_t n = row.channels;
  for (std::int64_t ow = 0; ow < row.out_width; ++ow, out += n, mask += kHasMask<kMode> ? n : 0) {
    const std::int64_t left = ow * row.stride_w - row.pad_w;
    const std::int64_t begin = left < 0 ? -left : 0;
    const std::int64_t end = left + row.kernel_w > row.in_width ? row.in_width - left : row.kernel_w;
    if (row.rows == 2 && row.first_row == 0 && row.kernel_w == 2 && begin == 0 && end == 2) {
      pool_2x2<kMode>(n, in + left * n, in + (row.in_width + left) * n, row.share, out, mask);
      continue;
    }
    bool first = true;
    for (std::int64_t kh = 0; kh < row.rows; ++kh) {
      for (std::int64_t kw = begin; kw < end; ++kw, first = false) {
        const auto place = static_cast<std::uint8_t>((row.first_row + kh) * row.kernel_w + kw);
        take<kMode>(n, in + (kh * row.in_width + left + kw) * n, place, first, out, mask);
      }
    }
    finish<kMode>(n, row.share, out, mask);
  }
}

template <PoolMode kMode, bool kAdd>
void give(std::int64_t n, float share, const float* __restrict grad, const std::uint8_t* __restrict mask,
          int place, float* __restrict to) {
  for (std::int64_t i = 0; i < n; ++i) {
    float value = grad[i];
    if constexpr (kMode == PoolMode::avg || kMode == PoolMode::avg_relu) value *= share;
    if constexpr (kMode == PoolMode::max_places) value = mask[i] == place ? value : 0.0F;
    if constexpr (kMode == PoolMode::max_relu) value = mask[i] == place + 1 ? value : 0.0F;
    if constexpr (kMode == PoolMode::avg_relu) value = (mask[i] & (1 << place)) != 0 ? value : 0.0F;
    to[i] = kAdd ? to[i] + value : value;
  }
}

template <PoolMode kMode, bool kAdd>
void pool_row_backward(const PoolRow& row, const float* grad, const std::uint8_t* mask, float* to) {
  const std::int64_t n = row.channels, pitch = row.in_width * n;
  std::int64_t covered = 0;
  for (std::int64_t ow = 0; ow < row.out_width; ++ow, grad += n, mask += kHasMask<kMode> ? n : 0) {
    const std::int64_t left = ow * row.stride_w - row.pad_w;
    const std::int64_t begin = left < 0 ? -left : 0;
    const std::int64_t end = left + row.kernel_w > row.in_width ? row.in_width - left : row.kernel_w;
    for (std::int64_t kh = 0; kh < row.rows; ++kh) {
      float* line = to + kh * pitch;
      if constexpr (!kAdd) clear((left + begin - covered) * n, line + covered * n);
      for (std::int64_t kw = begin; kw < end; ++kw) {
        give<kMode, kAdd>(n, row.share, grad, mask,
                          static_cast<int>((row.first_row + kh) * row.kernel_w + kw), line + (left + kw) * n);
      }
    }
    covered = left + end;
  }
  if constexpr (!kAdd) {
    for (std::int64_t kh = 0; kh < row.rows; ++kh) {
      clear((row.in_width - covered) * n, to + kh * pitch + covered * n);
    }
  }
}

void pool(PoolMode mode, const PoolRow& row, const float* in, float* out, std::uint8_t* mask) {
  switch (mode) {
    case PoolMode::avg:
      return pool_row<PoolMode::avg>(row, in, out, mask);
    case PoolMode::max:
      return pool_row<PoolMode::max>(row, in, out, mask);
    case PoolMode::max_places:
      return pool_row<PoolMode::max_places>(row, in, out, mask);
    case PoolMode::avg_relu:
      return pool_row<PoolMode::avg_relu>(row, in, out, mask);
    case PoolMode::max_relu:
      return pool_row<PoolMode::max_relu>(row, in, out, mask);
  }
}

template <PoolMode kMode>
void backward_of(bool add, const PoolRow& row, const float* grad, const std::uint8_t* mask, float* to) {
  if (add) return pool_row_backward<kMode, true>(row, grad, mask, to);
  pool_row_backward<kMode, false>(row, grad, mask, to);
}

void pool_backward(PoolMode mode, bool add, const PoolRow& row, const float* grad, const std::uint8_t* mask,
                   float* to) {
  switch (mode) {
    case PoolMode::avg:
    case PoolMode::max:
      return backward_of<PoolMode::avg>(add, row, grad, mask, to);
    case PoolMode::max_places:
      return backward_of<PoolMode::max_places>(add, row, grad, mask, to);
    case PoolMode::avg_relu:
      return backward_of<PoolMode::avg_relu>(add, row, grad, mask, to);
    case PoolMode::max_relu:
      return backward_of<PoolMode::max_relu>(add, row, grad, mask, to);
  }
}

}  // namespace
