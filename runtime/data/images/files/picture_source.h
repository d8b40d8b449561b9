// Labelled pictures as samples: read, decoded and transformed by the thread that asks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/bad_samples.h"
#include "runtime/data/images/files/picture_cache.h"
#include "runtime/data/images/files/picture_files.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/source.h"

namespace dtrain {

/// How pictures become samples.
struct PictureOptions {
  int size = 224;    ///< of a side of the image
  int resize = 256;  ///< of the short side it is cut from where nothing is drawn
  Augmentation augmentation = {};
  PixelNumbers numbers = kImageNetNumbers;
  bool upright = false;  ///< turned as EXIF says (turned_upright()); of pictures with a class
  std::shared_ptr<PictureCache> cache = {};  ///< of pictures with a class; null: none is kept
};

/// Samples are `image` float32 [3, size, size], normalised (PictureTransform), and `label` int64 [].
class PictureSource final : public Source {
 public:
  /// `bad` may be shared by several sources of the same files.
  PictureSource(std::string name, std::shared_ptr<const PictureFiles> files, const PictureOptions& options,
                std::shared_ptr<BadSamples> bad);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return files_->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  std::string file_of(std::int64_t index) const override { return files_->place(index); }
  std::optional<PixelNumbers> pixel_numbers(std::size_t /*field*/) const noexcept override {
    return numbers_;
  }

 private:
  std::unique_ptr<PictureDecoder> open(std::int64_t index) const;

  std::string name_;
  std::shared_ptr<const PictureFiles> files_;
  std::shared_ptr<BadSamples> bad_;
  PictureTransform transform_;
  PixelNumbers numbers_;
  bool upright_;
  std::shared_ptr<PictureCache> cache_;
  std::vector<Field> fields_;
};

}  // namespace dtrain
