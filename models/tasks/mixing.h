// Mixup and cutmix: batches of which each sample is mixed with the one before it, and the targets with it
// (Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018; Yun et al., "CutMix", 2019). How much,
// and where, is drawn once a batch and travels with it as a field, so that the mixing itself is work of the
// device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/source.h"
#include "training/batch_tensors.h"

namespace dtrain {

/// How batches are mixed, as torchvision's recipes do. With both, one of them in each batch, by a fair coin.
struct Mixing {
  double mixup = 0;   ///< shares are drawn from Beta(mixup, mixup); 0: never
  double cutmix = 0;  ///< the same of the share of a rectangle; 0: never
  bool any() const noexcept { return mixup > 0 || cutmix > 0; }
};

/// How one batch is mixed: a pixel is `own` · the sample's + `other` · the neighbour's; inside the box the
/// neighbour's alone. Its target is mixed by the shares of labels.
struct Mixture {
  float own = 1, other = 0;
  float left = 0, top = 0, right = 0, bottom = 0;  ///< columns [left, right), rows [top, bottom)
  float own_label = 1, other_label = 0;

  static constexpr std::int64_t kNumbers = 8;
};

Mixture mixup_of(double share);
/// The box of 1 - `share` of the area about (x, y), cut off at the border; labels are mixed by what is left.
Mixture cutmix_of(double share, std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height);
/// From Beta(alpha, alpha); alpha > 0, unchecked.
double draw_share(double alpha, KeyedGenerator& generator);

/// The samples of another source, and a field `mixture` f32 [8]: a Mixture, of which a batch uses its first
/// sample's. It is drawn behind what the sample draws itself, by the same (seed, epoch, index): a batch is
/// mixed alike wherever it is read, and after any restart.
class MixedSource final : public Source {
 public:
  static constexpr const char* kField = "mixture";

  /// `image`: which of the fields is mixed. Throws UsageError unless it is float32 and, for cutmix, [C, H,
  /// W].
  MixedSource(std::shared_ptr<const Source> samples, std::size_t image, const Mixing& mixing);

  std::string name() const override { return samples_->name(); }
  std::int64_t size() const noexcept override { return samples_->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  std::int64_t place_of(std::int64_t index) const noexcept override { return samples_->place_of(index); }
  std::string file_of(std::int64_t index) const override { return samples_->file_of(index); }
  bool in_memory() const noexcept override { return samples_->in_memory(); }
  bool has_bytes(std::size_t field) const noexcept override {
    return field + 1 < fields_.size() && samples_->has_bytes(field);
  }
  std::optional<PixelNumbers> pixel_numbers(std::size_t field) const noexcept override {
    return samples_->pixel_numbers(field);
  }

 private:
  Mixture draw(KeyedGenerator& generator) const;

  std::shared_ptr<const Source> samples_;
  Mixing mixing_;
  std::vector<Field> fields_;
  std::int64_t width_ = 1, height_ = 1;
};

/// `images` f32 [B, …], mixed as the first row of `mixture` f32 [B, 8] says; where a box is, [B, C, H, W].
Tensor mixed(const Tensor& images, const Tensor& mixture);
/// Cross entropy, the mean over the batch, with targets that are distributions: of `labels` i64 [B], or
/// probabilities f32 [B, classes], mixed in the same way where there is a mixture, and with a share
/// `smoothing` spread evenly over all classes. With `weight` [classes] each class' part counts so much more
/// (torch.nn.functional.cross_entropy with probabilities).
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor* mixture, double smoothing,
                          const Tensor& weight = {});

}  // namespace dtrain
