#include "runtime/device/cpu/dense/product_pieces.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {
namespace {

/// Rows, and columns, that the library computes together.
constexpr std::int64_t kRows = 32, kColumns = 64;
/// Of a product that is cut for its shape: a matrix unit needs 20 µs for so many terms.
constexpr double kTermsOfPiece = 6e6;
/// From here on waking threads costs a few percent, and what is copied for each piece may cost more.
constexpr double kLongNs = 2e6;

/// A matrix [1, rows, columns] whose rows, or columns where `transposed`, lie densely one behind the other.
bool is_dense(const View& m, bool transposed) {
  return transposed ? m.strides[1] == 1 && m.strides[2] == m.shape[1]
                    : m.strides[2] == 1 && m.strides[1] == m.shape[2];
}

/// A matrix whose rows, or columns where `transposed`, are dense in themselves.
bool has_lines(const View& m, bool transposed) {
  const int across = transposed ? 2 : 1, along = transposed ? 1 : 2;
  return m.strides[along] == 1 && m.strides[across] >= m.shape[along];
}

View dense_at(View view, std::byte* memory, bool transposed) {
  view.data = memory;
  view.strides = {view.shape[1] * view.shape[2], transposed ? 1 : view.shape[2],
                  transposed ? view.shape[1] : 1};
  return view;
}

/// Lines that are dense in themselves: rows of a matrix, or columns of a transposed one.
void copy_lines(const View& from, const View& to, bool transposed) {
  const int across = transposed ? 2 : 1, along = transposed ? 1 : 2;
  const std::int64_t size = size_of_one(from);
  for (std::int64_t line = 0; line < from.shape[across]; ++line) {
    std::memcpy(to.as<std::byte>() + line * to.strides[across] * size,
                from.as<const std::byte>() + line * from.strides[across] * size,
                static_cast<std::size_t>(from.shape[along] * size));
  }
}

/// How many pieces a product of so many terms, multiplied and added, is cut into.
std::int64_t pieces_of(Cut cut, double terms) {
  if (cut == Cut::by_shape)
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(terms / kTermsOfPiece), 1, kMostPieces);
  const double all_ns = terms / kTermsANs;
  return worker_count() == 1 || all_ns < kLeastParallelNs || all_ns > kLongNs ? 0 : worker_count();
}

}  // namespace

View part_of(View view, int dim, std::int64_t index, std::int64_t count) {
  if (view.data == nullptr) return view;
  view.data = view.as<std::byte>() + index * view.strides[dim] * size_of_one(view);
  view.shape[dim] = count;
  return view;
}

ProductPieces::ProductPieces(Cut cut, const View& a, const View& b, const View& bias, bool accumulate,
                             const View& out)
    : a_(a),
      b_(b),
      bias_(bias),
      out_(out),
      accumulate_(accumulate),
      any_pitch_(cut == Cut::by_shape && a.dtype == DType::f32) {
  const auto terms = static_cast<double>(out.numel() * a.shape[2]);
  const std::int64_t pieces = pieces_of(cut, terms);
  if (pieces == 0) return;
  if (out.shape[0] != 1 || a.shape[0] != 1 || b.shape[0] != 1 || !out.is_contiguous()) return;
  const auto fits = any_pitch_ ? has_lines : is_dense;
  for (const View* of : {&a, &b}) {
    if (!fits(*of, false) && !fits(*of, true)) return;
  }
  if (pieces > 1) choose();
  const std::int64_t all = out.shape[by_rows_ ? 1 : 2], block = by_rows_ ? kRows : kColumns;
  step_ = ((all + block - 1) / block + pieces - 1) / pieces * block;
  count_ = (all + step_ - 1) / step_;
  if (count_ == 1 && cut == Cut::for_workers) count_ = 0;  // the library's threads may do better
  piece_ns_ = terms / kTermsANs / static_cast<double>(count_);
}

/// By what every worker moves, the library's own copies among it: it packs b, and an a that is transposed.
void ProductPieces::choose() {
  const std::int64_t rows = out_.shape[1], columns = out_.shape[2], terms = a_.shape[2];
  const bool a_transposed = a_.strides[2] != 1, b_transposed = b_.strides[2] != 1;
  const std::int64_t by_columns =
      rows * columns + (a_transposed ? rows * terms : 0) + (b_transposed ? 0 : terms * columns / 2);
  by_rows_ = accumulate_ || terms * columns <= by_columns;
  copies_ = !any_pitch_ && (by_rows_ ? a_transposed : !b_transposed);
}

std::int64_t ProductPieces::length(std::int64_t index) const noexcept {
  return std::min(step_, out_.shape[by_rows_ ? 1 : 2] - first(index));
}

std::size_t ProductPieces::scratch_bytes() const noexcept {
  const std::int64_t read = copies_ ? step_ * a_.shape[2] * size_of_one(a_) : 0,
                     written = by_rows_ || any_pitch_ ? 0 : out_.shape[1] * step_ * size_of_one(out_);
  return static_cast<std::size_t>((read + 63) / 64 * 64 + written);
}

ProductPieces::Piece ProductPieces::piece(std::int64_t index, std::byte* scratch) const {
  const std::int64_t from = first(index), count = length(index);
  Piece piece{a_, b_, bias_, out_};
  if (by_rows_) {
    piece.a = part_of(a_, 1, from, count);
    if (copies_) piece.a = dense_at(piece.a, scratch, true);
    piece.out = part_of(out_, 1, from, count);
    return piece;
  }
  piece.b = part_of(b_, 2, from, count);
  piece.out = part_of(out_, 2, from, count);
  if (bias_.data != nullptr) piece.bias = part_of(bias_, 0, from, count);
  if (any_pitch_) return piece;
  if (copies_) piece.b = dense_at(piece.b, scratch, false);
  const std::int64_t read = copies_ ? step_ * a_.shape[2] * size_of_one(a_) : 0;
  piece.out = dense_at(piece.out, scratch + (read + 63) / 64 * 64, false);
  return piece;
}

void ProductPieces::load(std::int64_t index, const Piece& piece) const {
  if (!copies_) return;
  if (by_rows_) return copy_lines(part_of(a_, 1, first(index), length(index)), piece.a, true);
  copy_lines(part_of(b_, 2, first(index), length(index)), piece.b, false);
}

void ProductPieces::store(std::int64_t index, const Piece& piece) const {
  if (!by_rows_ && !any_pitch_) copy_lines(piece.out, part_of(out_, 2, first(index), length(index)), false);
}

}  // namespace dtrain::cpu
