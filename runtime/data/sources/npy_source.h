// Samples made of the rows of arrays, one a field: of .npy, .npz and IDX files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/cache/data_cache.h"
#include "runtime/data/formats/npy.h"
#include "runtime/data/source.h"

namespace dtrain {

/// One field's array.
struct NpyField {
  std::string name;
  std::string path;
  NpyArray array;  ///< [N, …]
};

/// Opens `path` for field `name` (read_npy); "FILE.npz:ARRAY" is that array of an archive, "FILE.npz" the one
/// called `name`, or the only one there. Throws DataError also for an array without samples, or of no
/// dimension.
NpyField open_npy_field(std::string name, std::string path);

/// The same of an IDX file of bytes, plain or gzip. Throws as read_idx.
NpyField open_idx_field(std::string name, std::string path, DataCache& cache);

/// What integer fields are below, where the caller knows.
struct NpyLimits {
  std::int64_t classes = 0;     ///< of `label`; 0: they are counted (count_classes); of `mask`
  std::int64_t ignored = 255;   ///< in a `mask`: no class, read as -1
  std::int64_t vocabulary = 0;  ///< of `tokens`; 0: not known
};

/// N samples of arrays on the disk; nothing is in memory but what the system keeps of the files, and arrays
/// in Fortran order. float64 and float16 are read as float32, as networks compute, int16 and int8 as int32;
/// int32, int64 and uint8 stay what they are, and a bool is a uint8 of 0 or 1. Three names have a meaning:
/// `image` of bytes [N, C, H, W], or [N, H, W] of one channel, and `clip` of bytes [N, T, C, H, W] are read
/// as float32 in [0, 1] like the pixels of every image source, and `label` [N] or [N, 1] of integers, or of
/// float64 that are whole numbers, is read as int64 classes. Where classes are known, `mask` [N, H, W] of
/// integers is read as int64, too, the class of each pixel. Numbers that are not finite in float32 are
/// refused: arrays of up to 1 GiB are looked through when they are opened, larger ones sample by sample as
/// they are read.
class NpySource final : public Source {
 public:
  /// Throws DataError naming file, offset, expected and found where the files hold different numbers of
  /// samples, a label is not in range or a number is not finite, UsageError for fields that are not
  /// well-formed. Tokens are checked as they are read (BatchLayout::check_values).
  NpySource(std::string name, std::vector<NpyField> files, const NpyLimits& limits = {});

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return files_.front().array.header.shape[0]; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  /// Throws DataError for a number that is not finite, and for a file that was shortened meanwhile.
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool has_bytes(std::size_t field) const noexcept override;
  /// The class of each sample; empty where there is no `label`.
  std::vector<std::int64_t> labels() const;

 private:
  std::string name_;
  std::vector<NpyField> files_;
  std::vector<bool> labels_;  // whether each is read as classes
  NpyLimits limits_;
  std::vector<bool> looked_through_;  // whether each is known to be finite
  std::vector<Field> fields_;
};

}  // namespace dtrain
