// Classification: cross entropy over a network's logits, and the share of samples whose largest logit
// is the label.
#pragma once

#include "models/tasks/fed_field.h"
#include "models/tasks/mixing.h"
#include "training/task.h"

namespace dtrain {

/// What is learned beside the labels as they are; evaluation knows nothing of it. All together are what
/// torch.nn.functional.cross_entropy makes of them: a mean over the weights of the samples' classes, and
/// over samples where these have probabilities or are mixed.
struct SoftTargets {
  double smoothing = 0;  ///< share of each target that is spread evenly over all classes, [0, 1)
  Mixing mixing = {};
  std::vector<float> class_weights = {};  ///< of each class in the mean of a step's losses, above 0; empty: 1
  bool any() const noexcept { return smoothing > 0 || mixing.any(); }
};

/// From so many classes on evaluation says how often the label is among the five likeliest.
inline constexpr std::int64_t kTopFiveFrom = 100;

/// Samples need a field `label` (i64 [], with a known number of classes, or f32 [classes], their
/// probabilities) beside what the network is fed, the first field that is neither `label` nor `y`: `image`
/// [C, H, W], or a vector. With probabilities the loss is that of torch.nn.functional.cross_entropy with
/// them, the likeliest class counts as the right one, and there is no confusion matrix.
class Classification final : public Task {
 public:
  /// `model` as make_network; an unknown one is refused by build(), and with `zero_last_norms` one without
  /// residual blocks (zero_last_norms()).
  explicit Classification(std::string_view model, const SoftTargets& targets = {},
                          bool zero_last_norms = false)
      : model_(model), targets_(targets), zero_last_norms_(zero_last_norms) {}

  std::string name() const override { return model_; }
  /// Throws also DataError for labels f32 that are no probabilities (check_soft_labels()).
  Splits open(const DataRequest& request) const override;
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override;
  std::size_t input_field(std::span<const std::string> names) const override {
    return first_fed_field(names, model_);
  }
  /// Mixed in training, where that is asked for.
  std::shared_ptr<const Source> for_training(std::shared_ptr<const Source> train) const override;
  Tensors inputs(const BatchTensors& batch) const override;
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override;
  /// The weights of the samples' classes, where they have any and samples are of one each.
  double units(const Batch& batch) const override;
  bool units_vary(std::span<const Field> fields) const override;
  OutputKind output_kind() const override { return OutputKind::logits; }
  const Field* predicted_field(std::span<const Field> fields) const override;
  std::size_t sum_count() const override { return 4; }
  /// Sums: the loss, right guesses, and of many classes (kTopFiveFrom) labels among the first five and
  /// samples.
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override;
  /// Metrics: "accuracy", 0 … 1, and of many classes "top5_accuracy".
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override;

 private:
  std::string model_;
  SoftTargets targets_;
  bool zero_last_norms_;
};

}  // namespace dtrain
