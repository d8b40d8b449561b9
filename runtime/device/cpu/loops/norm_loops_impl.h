// The loops of norm_loops.h, written for the compiler to vectorise; included as vector_loops_impl.h is, and
// like it free of other headers' inline functions.

namespace {
namespace norm {

using Bits = std::uint16_t;

inline float load(const float* from) { return *from; }
inline float load(const Bits* from) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(*from) << 16);
}
inline void store(float value, float* to) { *to = value; }
/// To nearest even; NaN stays NaN.
inline void store(float value, Bits* to) {
  const auto raw = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (raw + 0x7fffU + ((raw >> 16) & 1U)) >> 16;
  *to = static_cast<Bits>(value != value ? 0x7fc0U : rounded);
}

template <class T>
void moments_by_row(const NormRows& size, const T* in, const float* __restrict shift, float* __restrict sum,
                    float* __restrict squares) {
  const std::int64_t n = size.channels;
  for (std::int64_t row = 0; row < size.rows; ++row, in += n) {
    for (std::int64_t c = 0; c < n; ++c) {
      const float x = load(in + c) - shift[c];
      sum[c] += x;
      squares[c] += x * x;
    }
  }
}

void moments_of(const NormRows& size, const float* in, const float* __restrict shift, float* __restrict sum,
                float* __restrict squares) {
  moments_by_row(size, in, shift, sum, squares);
}

/// Four rows at a time, pairs first: with 8 bits many values of a channel are equal, and the same number
/// added again and again is rounded the same way each time, so that the error grows with the additions in a
/// row.
void moments_of(const NormRows& size, const Bits* in, const float* __restrict shift, float* __restrict sum,
                float* __restrict squares) {
  const std::int64_t n = size.channels, rest = size.rows % 4;
  moments_by_row({rest, n}, in, shift, sum, squares);
  in += rest * n;
  for (std::int64_t row = rest; row < size.rows; row += 4, in += 4 * n) {
    const Bits *second = in + n, *third = second + n, *fourth = third + n;
    for (std::int64_t i = 0; i < n; ++i) {
      const float a = load(in + i) - shift[i], b = load(second + i) - shift[i],
                  c = load(third + i) - shift[i], d = load(fourth + i) - shift[i];
      sum[i] += (a + b) + (c + d);
      squares[i] += (a * a + b * b) + (c * c + d * d);
    }
  }
}

template <class T, bool kRelu, bool kResidual>
void apply_rows(const NormRows& size, const T* in, const float* __restrict scale,
                const float* __restrict shift, const T* residual, T* __restrict out) {
  const std::int64_t n = size.channels;
  for (std::int64_t row = 0; row < size.rows; ++row, in += n, out += n, residual += kResidual ? n : 0) {
    for (std::int64_t c = 0; c < n; ++c) {
      float y = load(in + c) * scale[c] + shift[c];
      if constexpr (kResidual) y += load(residual + c);
      if constexpr (kRelu) y = y < 0.0F ? 0.0F : y;  // NaN stays
      store(y, out + c);
    }
  }
}

template <class T, bool kGate, bool kKeep>
void grad_sums_of(const NormRows& size, const T* grad, const T* output, const T* in,
                  const float* __restrict mean, T* __restrict gated, float* __restrict sum,
                  float* __restrict products) {
  const std::int64_t n = size.channels;
  for (std::int64_t row = 0; row < size.rows;
       ++row, grad += n, in += n, output += kGate ? n : 0, gated += kKeep ? n : 0) {
    for (std::int64_t c = 0; c < n; ++c) {
      float g = load(grad + c);
      if constexpr (kGate) g = load(output + c) <= 0.0F ? 0.0F : g;
      if constexpr (kKeep) store(g, gated + c);
      sum[c] += g;
      products[c] += g * (load(in + c) - mean[c]);
    }
  }
}

template <class T, bool kGate>
void grad_input_of(const NormRows& size, const T* grad, const T* output, const T* in,
                   const float* __restrict mean, const float* __restrict grad_mean,
                   const float* __restrict slope, const float* __restrict scale, T* __restrict to) {
  const std::int64_t n = size.channels;
  for (std::int64_t row = 0; row < size.rows; ++row, grad += n, in += n, to += n, output += kGate ? n : 0) {
    for (std::int64_t c = 0; c < n; ++c) {
      float g = load(grad + c);
      if constexpr (kGate) g = load(output + c) <= 0.0F ? 0.0F : g;
      store((g - grad_mean[c] - (load(in + c) - mean[c]) * slope[c]) * scale[c], to + c);
    }
  }
}

/// Calls `f` with a pointer of the row's type to choose the version by.
template <class F>
void typed(RowType type, F&& f) {
  if (type == RowType::f32) return f(static_cast<const float*>(nullptr));
  f(static_cast<const Bits*>(nullptr));
}

void moments(RowType type, const NormRows& size, const void* in, const float* shift, float* sum,
             float* squares) {
  typed(type, [&]<class T>(const T*) { moments_of(size, static_cast<const T*>(in), shift, sum, squares); });
}

void apply(RowType type, const NormRows& size, bool relu, const void* in, const float* scale,
           const float* shift, const void* residual, void* out) {
  typed(type, [&]<class T>(const T*) {
    const T* x = static_cast<const T*>(in);
    const T* r = static_cast<const T*>(residual);
    T* y = static_cast<T*>(out);
    if (relu && residual != nullptr) return apply_rows<T, true, true>(size, x, scale, shift, r, y);
    if (relu) return apply_rows<T, true, false>(size, x, scale, shift, r, y);
    if (residual != nullptr) return apply_rows<T, false, true>(size, x, scale, shift, r, y);
    apply_rows<T, false, false>(size, x, scale, shift, r, y);
  });
}

void grad_sums(RowType type, const NormRows& size, const void* grad, const void* output, const void* in,
               const float* mean, void* gated, float* sum, float* products) {
  typed(type, [&]<class T>(const T*) {
    const T* g = static_cast<const T*>(grad);
    const T* y = static_cast<const T*>(output);
    const T* x = static_cast<const T*>(in);
    T* keep = static_cast<T*>(gated);
    if (y != nullptr && keep != nullptr) {
      return grad_sums_of<T, true, true>(size, g, y, x, mean, keep, sum, products);
    }
    if (y != nullptr) return grad_sums_of<T, true, false>(size, g, y, x, mean, keep, sum, products);
    if (keep != nullptr) return grad_sums_of<T, false, true>(size, g, y, x, mean, keep, sum, products);
    grad_sums_of<T, false, false>(size, g, y, x, mean, keep, sum, products);
  });
}

void grad_input(RowType type, const NormRows& size, const void* grad, const void* output, const void* in,
                const float* mean, const float* grad_mean, const float* slope, const float* scale, void* to) {
  typed(type, [&]<class T>(const T*) {
    const T* g = static_cast<const T*>(grad);
    const T* y = static_cast<const T*>(output);
    const T* x = static_cast<const T*>(in);
    if (y != nullptr) {
      return grad_input_of<T, true>(size, g, y, x, mean, grad_mean, slope, scale, static_cast<T*>(to));
    }
    grad_input_of<T, false>(size, g, y, x, mean, grad_mean, slope, scale, static_cast<T*>(to));
  });
}

}  // namespace norm
}  // namespace
