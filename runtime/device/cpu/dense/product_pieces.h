// A product of matrices cut into pieces. Into one for each worker, where it takes so short that waking the
// math library's threads would cost much of what they gain; or into pieces that follow from the shape, where
// the library's sums depend on what it computes together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/view.h"

namespace dtrain::cpu {

/// Products and sums of a matrix product that a core adds up in a nanosecond, about.
inline constexpr double kTermsANs = 48;
/// A product is cut into so many pieces at most: enough for as many threads.
inline constexpr std::int64_t kMostPieces = 8;

inline std::int64_t size_of_one(const View& view) { return static_cast<std::int64_t>(size_of(view.dtype)); }

/// `view` from `index` on along its dimension `dim`, `count` long. Null data stays null.
View part_of(View view, int dim, std::int64_t index, std::int64_t count);

/// How many pieces.
enum class Cut {
  for_workers,  ///< as many as there are, if there are several and the product is neither long nor very short
  by_shape,     ///< one to eight of several million terms each
};

/// out [1, M, N] = a [1, M, K] · b [1, K, N] + bias [N], or null, in pieces: rows of a and out, or columns of
/// b and out, whichever moves less memory. Arrays of a piece are dense, as the library's vector products ask
/// for: what is not is copied. Those in f32 that follow from the shape are parts of the arrays themselves.
class ProductPieces {
 public:
  ProductPieces(Cut cut, const View& a, const View& b, const View& bias, bool accumulate, const View& out);

  struct Piece {
    View a, b, bias, out;
  };

  /// 0: this product is not cut so (several products, rows that are not dense, or as Cut says).
  std::int64_t count() const noexcept { return count_; }
  double piece_ns() const noexcept { return piece_ns_; }
  /// Memory for a piece's copies.
  std::size_t scratch_bytes() const noexcept;
  /// Which arrays piece `index` is a product of; those in `scratch` where they have to be copied.
  Piece piece(std::int64_t index, std::byte* scratch) const;
  /// Copies what is read before, and what was written after the product.
  void load(std::int64_t index, const Piece& piece) const;
  void store(std::int64_t index, const Piece& piece) const;

 private:
  void choose();
  std::int64_t first(std::int64_t index) const noexcept { return index * step_; }
  std::int64_t length(std::int64_t index) const noexcept;

  const View a_, b_, bias_, out_;
  const bool accumulate_, any_pitch_;  ///< the library takes lines of any distance
  bool by_rows_ = true;
  bool copies_ = false;  ///< what is read: a's rows, or b's columns
  std::int64_t step_ = 0, count_ = 0;
  double piece_ns_ = 0;
};

}  // namespace dtrain::cpu
