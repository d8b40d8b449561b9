// Products of small matrices, and how their operands are laid out: what attention_loops_impl.h is made of.
//
// An element E says what a product is made of: a word is one number, or a pair of bf16 whose products are
// added together (kPack). A left operand a(m, k) is broadcast word by word and may have any steps; rows of
// the right one, b(k, n), go into vectors.

namespace {

template <class Number>
struct VectorOf {
  typedef Number Aligned __attribute__((vector_size(kVectorBytes)));
  typedef Number Loose __attribute__((vector_size(kVectorBytes), aligned(alignof(Number)), may_alias));
};

/// Products of numbers as they are.
template <class T>
struct Plain {
  using Number = T;
  using Word = T;
  using Vector = typename VectorOf<T>::Aligned;
  static constexpr std::int64_t kPack = 1;

  static void add_product(Vector& sum, const Word& a, const Vector& b) { sum += a * b; }
};

template <class E>
inline constexpr std::int64_t kLanes = kVectorBytes / static_cast<std::int64_t>(sizeof(typename E::Number));

constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
constexpr std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

inline float widened(float x) { return x; }
inline double widened(double x) { return x; }
inline float widened(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}
inline void narrow(float x, float* to) { *to = x; }
inline void narrow(double x, double* to) { *to = x; }
/// To nearest even; NaN stays NaN.
inline void narrow(float x, std::uint16_t* to) {
  const auto raw = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t near = (raw + 0x7fffU + ((raw >> 16) & 1U)) >> 16;
  *to = static_cast<std::uint16_t>(x != x ? 0x7fc0U : near);
}

/// Words by their steps.
template <class E>
struct Words {
  const typename E::Word* data;
  std::int64_t row, step;

  Words below(std::int64_t rows) const { return {data + rows * row, row, step}; }
};

/// kRows rows and kVectors vectors of columns of c, row-major, += or = Σ a(m, k) · b(k, n), k in order.
template <class E, int kRows, int kVectors>
inline void multiply_tile(std::int64_t depth, Words<E> a, Words<E> b, bool adds, typename E::Number* c,
                          std::int64_t c_row) {
  using Vector = typename E::Vector;
  using Loose = typename VectorOf<typename E::Number>::Loose;
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = adds ? *reinterpret_cast<const Vector*>(c + r * c_row + v * kLanes<E>) : Vector{};
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      right[v] = *reinterpret_cast<const Loose*>(b.data + k * b.row + v * kLanes<E>);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) E::add_product(sums[r][v], a.data[r * a.row + k * a.step], right[v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<Vector*>(c + r * c_row + v * kLanes<E>) = sums[r][v];
    }
  }
}

template <class E, int kVectors>
inline void multiply_rows(std::int64_t rows, std::int64_t depth, Words<E> a, Words<E> b, bool adds,
                          typename E::Number* c, std::int64_t c_row) {
  std::int64_t m = 0;
  for (; m + kTileRows <= rows; m += kTileRows) {
    multiply_tile<E, kTileRows, kVectors>(depth, a.below(m), b, adds, c + m * c_row, c_row);
  }
  for (; m < rows; ++m) multiply_tile<E, 1, kVectors>(depth, a.below(m), b, adds, c + m * c_row, c_row);
}

/// c [rows][columns] += or = a · b, `depth` words; columns in whole vectors, c aligned.
template <class E>
inline void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, Words<E> a, Words<E> b,
                     bool adds, typename E::Number* c, std::int64_t c_row) {
  std::int64_t n = 0;
  for (; n + kTileVectors * kLanes<E> <= columns; n += kTileVectors * kLanes<E>) {
    multiply_rows<E, kTileVectors>(rows, depth, a, {b.data + n, b.row, b.step}, adds, c + n, c_row);
  }
  for (; n < columns; n += kLanes<E>) {
    multiply_rows<E, 1>(rows, depth, a, {b.data + n, b.row, b.step}, adds, c + n, c_row);
  }
}

/// [rows][columns] of some array.
template <class T>
struct Source {
  const T* data;
  std::int64_t row, rows, columns;
};

/// As a left operand whose depth are the columns: rows of words, padded with zeros to whole vectors, in
/// `memory`, or as they lie there.
template <class E, class T>
inline Words<E> as_left(const Source<T>& from, typename E::Word* memory) {
  if constexpr (E::kPack == 1 && sizeof(T) == sizeof(typename E::Word)) {
    return {from.data, from.row, 1};
  } else if constexpr (E::kPack == 1) {
    const std::int64_t pitch = rounded_up(from.columns, kLanes<E>);
    for (std::int64_t r = 0; r < from.rows; ++r) {
      const T* row = from.data + r * from.row;
      auto* to = memory + r * pitch;
      for (std::int64_t c = 0; c < from.columns; ++c) to[c] = widened(row[c]);
      for (std::int64_t c = from.columns; c < pitch; ++c) to[c] = 0;
    }
    return {memory, pitch, 1};
  } else {
    const std::int64_t pitch = rounded_up(from.columns, 2 * kLanes<E>) / 2;
    for (std::int64_t r = 0; r < from.rows; ++r) {
      auto* to = reinterpret_cast<T*>(memory + r * pitch);
      __builtin_memcpy(to, from.data + r * from.row, static_cast<std::size_t>(from.columns) * sizeof(T));
      for (std::int64_t c = from.columns; c < 2 * pitch; ++c) to[c] = 0;
    }
    return {memory, pitch, 1};
  }
}

/// As a right operand whose depth are the rows: kPack rows in one of words, padded with zeros to whole
/// vectors and words, in `memory`, or as they lie there.
template <class E, class T>
inline Words<E> as_right(const Source<T>& from, typename E::Word* memory) {
  const std::int64_t pitch = rounded_up(from.columns, kLanes<E>);
  if constexpr (E::kPack == 1) {
    if constexpr (sizeof(T) == sizeof(typename E::Word)) {
      if (from.columns == pitch) return {from.data, from.row, 1};
    }
    for (std::int64_t r = 0; r < from.rows; ++r) {
      const T* row = from.data + r * from.row;
      auto* to = memory + r * pitch;
      for (std::int64_t c = 0; c < from.columns; ++c) to[c] = widened(row[c]);
      for (std::int64_t c = from.columns; c < pitch; ++c) to[c] = 0;
    }
  } else {
    for (std::int64_t r = 0; r < from.rows; r += 2) {
      const T* row = from.data + r * from.row;
      const bool is_pair = r + 1 < from.rows;
      const T* next = is_pair ? row + from.row : row;
      const std::uint32_t mask = is_pair ? ~0U : 0U;
      auto* to = reinterpret_cast<std::uint32_t*>(memory + r / 2 * pitch);
      for (std::int64_t c = 0; c < from.columns; ++c) {
        to[c] = static_cast<std::uint32_t>(row[c]) | ((static_cast<std::uint32_t>(next[c]) << 16) & mask);
      }
      for (std::int64_t c = from.columns; c < pitch; ++c) to[c] = 0;
    }
  }
  return {memory, pitch, 1};
}

/// 16 rows of 16 words of 32 bits, `pitch` apart, transposed to `to`, rows of kQueriesOfBlock. For vectors of
/// 64 bytes.
inline void transpose_block(const float* from, std::int64_t pitch, float* to) {
  typedef float Vector __attribute__((vector_size(64)));
  Vector rows[16], next[16];
  for (int i = 0; i < 16; ++i) rows[i] = *reinterpret_cast<const Vector*>(from + i * pitch);
  // Four rounds of interleaving rows i and i + 8.
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = __builtin_shufflevector(rows[i], rows[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                            22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                                13, 29, 14, 30, 15, 31);
    }
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < 16; ++i) *reinterpret_cast<Vector*>(to + i * kQueriesOfBlock) = rows[i];
}

/// A block of up to kQueriesOfBlock rows as a right operand whose depth are the columns:
/// [columns / kPack][kQueriesOfBlock]. `staging` takes the block in rows of words.
template <class E, class T>
inline void turn(const Source<T>& from, typename E::Word* staging, typename E::Word* to) {
  using Word = typename E::Word;
  const std::int64_t words = rounded_up(from.columns, E::kPack) / E::kPack,
                     pitch = rounded_up(words, kLanes<E>);
  for (std::int64_t r = 0; r < kQueriesOfBlock; ++r) {
    Word* row = staging + r * pitch;
    const std::int64_t columns = r < from.rows ? from.columns : 0;
    if constexpr (E::kPack == 1) {
      for (std::int64_t c = 0; c < columns; ++c) row[c] = widened(from.data[r * from.row + c]);
      for (std::int64_t c = columns; c < pitch; ++c) row[c] = 0;
    } else {
      auto* halves = reinterpret_cast<T*>(row);
      if (columns > 0) {
        __builtin_memcpy(halves, from.data + r * from.row, static_cast<std::size_t>(columns) * sizeof(T));
      }
      for (std::int64_t c = columns; c < 2 * pitch; ++c) halves[c] = 0;
    }
  }
  if constexpr (sizeof(Word) == 4 && kVectorBytes == 64) {
    for (std::int64_t c = 0; c < pitch; c += 16) {
      for (std::int64_t r = 0; r < kQueriesOfBlock; r += 16) {
        transpose_block(staging + r * pitch + c, pitch, to + c * kQueriesOfBlock + r);
      }
    }
  } else {
    for (std::int64_t c = 0; c < pitch; ++c) {
      for (std::int64_t r = 0; r < kQueriesOfBlock; ++r) to[c * kQueriesOfBlock + r] = staging[r * pitch + c];
    }
  }
}

/// Hands out pieces of memory, or only counts their bytes.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += static_cast<std::size_t>(rounded_up(count * static_cast<std::int64_t>(sizeof(T)), 64));
    return piece;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

}  // namespace
