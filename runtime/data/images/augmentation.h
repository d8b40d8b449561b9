// How pictures are changed at random while training, as text and as values: what --augment says.
#pragma once

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

  bool operator==(const Augmentation&) const = default;
  /// Whether single pixels change, rather than which are seen.
  bool changes_pixels() const noexcept {
    return jitter != ColorJitter{} || rand_augment.ops > 0 || trivial_augment;
  }
};

/// "none", "imagenet" (crop and flip: ResNet's recipe), "imagenet-v2" (with trivialaugment and erase=0.1, as
/// torchvision trained its newer weights)
std::span<const std::string_view> augmentation_presets() noexcept;
/// A preset's name, or the steps.
std::string name_of(const Augmentation& augmentation);
/// A preset, steps, or a preset and more steps, separated by commas: crop, flip,
/// jitter=BRIGHTNESS/CONTRAST/SATURATION/HUE, randaugment or randaugment=OPS/MAGNITUDE, trivialaugment,
/// erase=PROBABILITY. Whatever their order here, they are done in that of Augmentation. Throws UsageError,
/// listing them, for anything else.
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
