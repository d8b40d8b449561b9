// Labelled images in two IDX files, as MNIST and its relatives are distributed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/cache/data_cache.h"
#include "runtime/data/formats/idx.h"
#include "runtime/data/source.h"

namespace dtrain {

/// Where the files are and what they must hold.
struct IdxSourceFiles {
  std::string name;    ///< for name()
  std::string images;  ///< path, plain or gzip
  std::string labels;
  std::int64_t height = 28, width = 28;
  std::int64_t classes = 10;
  std::string remedy;  ///< how to get the files, appended when one is missing; may be empty
};

/// image float32 [1, height, width] in [0, 1] and label int64 [], from grey images of one byte a pixel.
class IdxSource final : public Source {
 public:
  /// Reads and validates both files: each is whole, the images have the expected size, there are as many
  /// labels as images, every label is below `classes`. Throws DataError otherwise.
  IdxSource(const IdxSourceFiles& files, DataCache& cache);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return images_.dims[0]; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool has_bytes(std::size_t field) const noexcept override { return field == 0; }  // the image

 private:
  std::string name_;
  std::vector<Field> fields_;
  std::size_t pixels_;  // of an image
  IdxArray images_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace dtrain
