// CIFAR-10 in its binary version: records of one label byte and 3 × 32 × 32 pixel bytes, plane by plane.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/dataset.h"

namespace dtrain {

/// All records of some files, in order, held in memory (30 MB for a training batch file).
class Cifar10Dataset final : public Dataset {
 public:
  /// Reads and validates `files`: each holds a whole number of records, at least one, and every label is
  /// below 10. `remedy` is appended when a file is missing. Throws DataError.
  Cifar10Dataset(std::string name, const std::vector<std::string>& files, const std::string& remedy);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override;
  SampleShape sample_shape() const noexcept override { return {3, 32, 32}; }
  std::int64_t classes() const noexcept override { return 10; }
  void decode(std::int64_t index, PixelLayout layout, float* out) const override;
  std::int64_t label(std::int64_t index) const override;

 private:
  const unsigned char* record(std::int64_t index) const;

  std::string name_;
  std::string bytes_;
};

}  // namespace dtrain
