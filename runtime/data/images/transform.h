// What is made of a picture before a network sees it: torchvision's transforms with Pillow's numbers.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "runtime/base/keyed_random.h"
#include "runtime/base/random.h"
#include "runtime/data/images/augmentation.h"
#include "runtime/data/images/decode.h"
#include "runtime/data/images/picture_ops.h"
#include "runtime/data/images/resize.h"
#include "runtime/data/source.h"
#include "runtime/device/view.h"

namespace dtrain {

/// The means and deviations of the data set ImageNet.
inline constexpr PixelNumbers kImageNetNumbers = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};

/// What is drawn for one picture. Others of its size may be changed alike: the frames of a clip, a mask.
struct DrawnChanges {
  std::optional<Region> crop = {};  ///< of the picture; nothing: its middle
  bool flip = false;
  std::vector<PictureOp> ops = {};  ///< of pixels, in this order
  Region erased = {};               ///< of the image; empty: nothing
};

/// Which pixels of a picture an image shows: those of `crop`, resized as `how` says.
struct SeenRegion {
  Region crop;
  Resizing how;
};

/// From a picture to image float32 [3, size, size]; immutable, shared by any number of threads.
class PictureTransform {
 public:
  /// Without a random crop the short side becomes `resize` pixels (Resize) and the
  /// middle is cut out (CenterCrop). Throws UsageError unless 1 <= size <= resize.
  PictureTransform(int size, int resize, const Augmentation& augmentation,
                   const PixelNumbers& numbers = kImageNetNumbers);

  /// Decodes what is needed of the picture and writes (value / 255 - mean) / deviation of each channel into
  /// `image`, f32 [3, size, size] of any strides. Draws as torchvision does, in its
  /// order (draws.h). Throws as PictureDecoder::decode.
  void operator()(PictureDecoder& picture, KeyedGenerator& generator, const View& image) const;
  void operator()(PictureDecoder& picture, Generator& generator, const View& image) const;

  /// The draws alone, for a picture of `size`.
  DrawnChanges draw(PictureSize size, KeyedGenerator& generator) const;
  /// The same of a picture of the size that `changes` were drawn for.
  void operator()(PictureDecoder& picture, const DrawnChanges& changes, const View& image) const;
  /// Which part of a picture of `size` an image shows (mirrored, where `changes` say so).
  SeenRegion seen_region(PictureSize size, const DrawnChanges& changes) const;

 private:
  template <class Words>
  DrawnChanges draw_from(PictureSize size, Words& words) const;

  int size_, resize_;
  Augmentation augmentation_;
  PixelNumbers numbers_;
  bool by_products_;  ///< the numbers, with the same bits as by divisions
};

}  // namespace dtrain
