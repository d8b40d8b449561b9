// Pictures with a class for each pixel as samples: what segmentation learns from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/bad_samples.h"
#include "runtime/data/images/files/masked_files.h"
#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/images/masks/class_map.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/source.h"

namespace dtrain {

/// Samples are `image` float32 [3, size, size], normalised (PictureTransform), and `mask` int64 [size, size]:
/// the class of each pixel, or -1 for those without. What is drawn for a picture is done to its mask: it is
/// cropped, resized (to the nearest pixel) and mirrored alike. Colours and erasing change the picture alone.
class MaskedSource final : public Source {
 public:
  /// `bad` may be shared by several sources of the same files. Throws UsageError for less than one class, and
  /// for augmentation that turns or shears (randaugment, trivialaugment).
  MaskedSource(std::string name, std::shared_ptr<const MaskedPictures> files, const PictureOptions& options,
               const ClassNumbers& numbers, std::shared_ptr<BadSamples> bad);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return files_->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  /// Throws DataError also for a mask of another size than its picture's, or with a number that is no class.
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  std::string file_of(std::int64_t index) const override { return files_->place(index); }
  std::optional<PixelNumbers> pixel_numbers(std::size_t field) const noexcept override {
    return field == 0 ? std::optional(numbers_) : std::nullopt;
  }

 private:
  std::string name_;
  std::shared_ptr<const MaskedPictures> files_;
  std::shared_ptr<BadSamples> bad_;
  PictureTransform transform_;
  PixelNumbers numbers_;
  ClassNumbers classes_;
  std::vector<Field> fields_;
};

}  // namespace dtrain
