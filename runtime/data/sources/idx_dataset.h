// A dataset in two IDX files, images and labels, as MNIST and its relatives are distributed.
#pragma once

#include <memory>
#include <string>

#include "runtime/data/cache/data_cache.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sources/idx.h"

namespace dtrain {

/// Where the files are and what they must hold.
struct IdxDatasetFiles {
  std::string name;    ///< for name()
  std::string images;  ///< path, plain or gzip
  std::string labels;
  std::int64_t height = 28, width = 28;
  std::int64_t classes = 10;
  std::string remedy;  ///< how to get the files, appended when one is missing; may be empty
};

/// Grey images [n, height, width] of one byte a pixel; one channel, so both layouts are the same.
class IdxDataset final : public Dataset {
 public:
  /// Reads and validates both files: each is whole, the images have the expected size, there are as many
  /// labels as images, every label is below `classes`. Throws DataError otherwise.
  IdxDataset(const IdxDatasetFiles& files, DataCache& cache);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return images_.dims[0]; }
  SampleShape sample_shape() const noexcept override { return shape_; }
  std::int64_t classes() const noexcept override { return classes_; }
  void decode(std::int64_t index, PixelLayout layout, float* out) const override;
  std::int64_t label(std::int64_t index) const override {
    return labels_.bytes[static_cast<std::size_t>(index)];
  }

 private:
  std::string name_;
  SampleShape shape_;
  std::int64_t classes_;
  IdxArray images_;
  IdxArray labels_;
};

}  // namespace dtrain
