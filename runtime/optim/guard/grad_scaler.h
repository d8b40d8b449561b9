// Dynamic loss scaling for float16: torch.cuda.amp.GradScaler's rule. Whether a step is skipped is decided on
// the device, so that nothing waits for the host and a captured step decides each time it runs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "runtime/optim/guard/update_guard.h"

namespace dtrain {

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth = 2, backoff = 0.5;
  std::int64_t growth_interval = 2000;
  /// The scale never falls below: torch's falls to 0, and then nothing is learned. By default the smallest
  /// normal float16, 2^-14; what still overflows there is no matter of scale.
  double least_scale = 1.0 / 16384;
};

/// A guard that does not stop the run: a step whose gradients overflow is skipped, and the scale halved.
/// A step: backward from scale_seed(), all-reduce, unscale(), optimizer.step(), update().
class GradScaler final : public UpdateGuard {
 public:
  /// Throws UsageError for options that make no sense.
  GradScaler(const std::shared_ptr<Device>& device, const GradScalerOptions& options = {});

  /// Makes `optimizer` skip steps in which unscale() found a gradient that is not finite. Before its first
  /// step.
  void attach(Optimizer& optimizer) const override;

  /// What to start backward with instead of `weight`: weight · scale, float32 [].
  Tensor scale_seed(double weight) const;
  /// Divides the gradients (those that are defined), of any devices, by the scale, in place, and looks for
  /// what is not finite.
  void unscale(std::span<const Tensor> gradients);
  /// unscale(): found() is this step's alone.
  void inspect(std::span<const Tensor> gradients) override { unscale(gradients); }
  /// A step that overflows must leave the parameters, since training resumes behind it.
  bool inspects_first() const noexcept override { return true; }
  /// Moves the scale. Once a step, after the optimizer.
  void update() override;

  /// Writes the scale and the steps skipped in the whole run to `to` (f64 [2]) on the device; nothing waits.
  void report(const View& to) const;

  double least_scale() const noexcept { return rule_.least; }

  // ---- read by the host: these wait for the device
  double scale() const;
  /// Clean steps in a row since the scale last changed.
  std::int64_t tracker() const;
  /// Steps skipped in the whole run, those before a checkpoint included.
  std::int64_t skipped() const;

  /// "scale", "tracker" and "skipped" as text, for a checkpoint.
  std::map<std::string, std::string> state() const;
  /// Takes it over, a scale below the least as the least; before the first step. Throws UsageError for
  /// missing or malformed entries.
  void load_state(const std::map<std::string, std::string>& state);

 private:
  LossScaleState views() const;

  LossScaleRule rule_;
  Tensor scale_, tracker_, skipped_;
  std::int64_t skipped_before_ = 0;  ///< in the run that a checkpoint continues
};

}  // namespace dtrain
