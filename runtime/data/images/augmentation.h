// How pictures are changed at random while training, as text and as values: what --augment says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/data/images/picture_ops.h"

namespace dtrain {

/// How far ColorJitter goes: factors of 1 - x to 1 + x, and turns of the colour circle of -hue to hue; 0:
/// not.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  bool operator==(const ColorJitter&) const = default;
};

/// `ops` changes of one magnitude, 0 to 30; none: not at all.
struct RandAugment {
  int ops = 0, magnitude = 9;
  bool operator==(const RandAugment&) const = default;
};

/// How large the images are that are trained on, in pixels of a side: `from` while at most `first` epochs are
/// finished, `to` from `last` finished ones on, between them along a line, in multiples of 32 (FFCV's) that
/// are not beyond both.
struct TrainingSize {
  int from = 0, to = 0;  ///< `from` 0: as large as those of the evaluation
  int first = 0, last = 0;

  bool operator==(const TrainingSize&) const = default;
  /// In epoch number `epoch`, from 0: as many are finished.
  int at(std::int64_t epoch) const noexcept;
};

/// What is done to each picture, in this order; by default nothing, as in evaluation.
///
///     const Augmentation recipe = augmentation_named("imagenet,jitter=0.4/0.4/0.4/0.1,erase=0.25");
struct Augmentation {
  bool crop = false;              ///< RandomResizedCrop (bilinear), instead of the middle
  bool flip = false;              ///< RandomHorizontalFlip
  ColorJitter jitter = {};        ///< ColorJitter
  RandAugment rand_augment = {};  ///< RandAugment (bilinear)
  bool trivial_augment = false;   ///< TrivialAugmentWide (bilinear)
  double erase = 0;               ///< probability of RandomErasing
  TrainingSize size = {};         ///< of the images

  bool operator==(const Augmentation&) const = default;
  /// Whether single pixels change, rather than which are seen.
  bool changes_pixels() const noexcept {
    return jitter != ColorJitter{} || rand_augment.ops > 0 || trivial_augment;
  }
};

/// "none", "imagenet" (crop and flip: ResNet's recipe), "imagenet-v2" (with trivialaugment and erase=0.1, as
/// torchvision trained its newer weights)
std::span<const std::string_view> augmentation_presets() noexcept;
/// "176", "160/192/11/13"
std::string name_of(const TrainingSize& size);
/// A preset's name, or the steps.
std::string name_of(const Augmentation& augmentation);
/// A preset, steps, or a preset and more steps, separated by commas: crop, flip,
/// jitter=BRIGHTNESS/CONTRAST/SATURATION/HUE, randaugment or randaugment=OPS/MAGNITUDE, trivialaugment,
/// erase=PROBABILITY; size=N or size=FROM/TO/FIRST/LAST (TrainingSize). Whatever their order here, they are
/// done in that of Augmentation. Throws UsageError, listing them, for anything else.
Augmentation augmentation_named(std::string_view text);

/// A kind of change that a policy draws, and its magnitudes, in steps from `least` to `most`.
struct PolicyRow {
  PictureOpKind kind = PictureOpKind::identity;
  bool has_magnitude = false, is_signed = false;
  float least = 0, most = 0;

  PictureOp op(int magnitude, bool negative) const;
};
inline constexpr int kPolicyRows = 14, kMagnitudes = 31;
/// Row 0 … kPolicyRows - 1, unchecked, in torchvision's order.
PolicyRow rand_augment_row(int row, PictureSize size);
PolicyRow trivial_augment_row(int row);

}  // namespace dtrain
