// CIFAR-10 in its binary version: records of one label byte and 3 × 32 × 32 pixel bytes, plane by plane.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

/// image float32 [3, 32, 32] in [0, 1] and label int64 []: all records of some files, in order, held in
/// memory (30 MB for a training batch file).
class Cifar10Source final : public Source {
 public:
  /// Reads and validates `files`: each holds a whole number of records, at least one, and every label is
  /// below 10. `remedy` is appended when a file is missing. Throws DataError.
  Cifar10Source(std::string name, const std::vector<std::string>& files, const std::string& remedy);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override;
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool has_bytes(std::size_t field) const noexcept override { return field == 0; }  // the image

 private:
  std::string name_;
  std::vector<Field> fields_;
  std::string bytes_;
};

}  // namespace dtrain
