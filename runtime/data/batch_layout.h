// Where a batch's fields and indices lie in one piece of memory.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/data/batch.h"

namespace dtrain {

/// Computed once for a source and a batch size; immutable.
class BatchLayout {
 public:
  /// `channels_last` names image fields ([C, H, W]) that are to lie pixel by pixel; with `bytes`, fields that
  /// can are carried as bytes (Source::has_bytes). With `all_rows`, samples that have lengths of their own
  /// are padded to the most rows there may be. Throws UsageError for fields that are not well-formed
  /// (check_fields), for a name that is no image field, for bytes that stand for something else than f32, and
  /// when the batch is too large to be addressed.
  BatchLayout(const Source& source, std::int64_t batch_size, const std::vector<std::string>& channels_last,
              bool bytes = false, bool all_rows = false);

  /// Of a full batch.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Where the indices lie in `piece`.
  std::int64_t* indices(std::byte* piece) const noexcept {
    return reinterpret_cast<std::int64_t*>(piece + indices_offset_);
  }
  /// Views of the first sample in `piece`, one a field; next() moves them on to the next sample.
  std::vector<View> first_sample(std::byte* piece) const;
  void next(std::span<View> sample) const noexcept;
  /// Cuts fields whose samples have lengths of their own to the rows of the longest of the first `count`
  /// samples of `piece`, unless the layout is to keep all rows. Once, after check_values() and before
  /// batch().
  void cut_padding(std::byte* piece, std::int64_t count) const;
  /// The first `count` samples of `piece` as a batch, which owns the piece.
  Batch batch(std::shared_ptr<std::byte> piece, std::int64_t count) const;

  /// Throws Error naming source, field and sample `index` when the source's fields are no longer those it
  /// had.
  void check_unchanged(const Source& source, std::int64_t index) const;
  /// Throws Error naming source, field and sample when an integer among the first samples of `piece`, whose
  /// indices are `indices`, is outside its field's `values`.
  void check_values(const Source& source, std::byte* piece, std::span<const std::int64_t> indices) const;

 private:
  /// Of each field with lengths, behind the indices: the rows that a batch has.
  std::int64_t* rows(std::byte* piece) const noexcept {
    return reinterpret_cast<std::int64_t*>(piece + rows_offset_);
  }

  struct Place {
    std::size_t offset = 0;        ///< of the first sample, in bytes
    std::size_t sample_bytes = 0;  ///< from one sample to the next
    DType dtype = DType::f32;      ///< the field's, or u8 in its place
    Dims strides;                  ///< inside a sample, in elements
  };

  std::shared_ptr<const std::vector<Field>> fields_;
  std::vector<Place> places_;  ///< one a field
  std::size_t indices_offset_ = 0, rows_offset_ = 0, bytes_ = 0;
  bool cuts_ = false;  ///< some samples have lengths, and batches are as long as their longest
};

}  // namespace dtrain
