// Dynamic loss scaling for float16: torch.cuda.amp.GradScaler's rule. Whether a step is skipped is decided on
// the device, so that nothing waits for the host and a captured step decides each time it runs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "runtime/optim/optimizer.h"

namespace dtrain {

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth = 2, backoff = 0.5;
  std::int64_t growth_interval = 2000;
};

/// A step: backward from scale_seed(), all-reduce, unscale(), optimizer.step(), update(). A gradient that is
/// not finite on any rank makes the sum over ranks not finite on all of them, so that every rank decides
/// alike without another message.
class GradScaler {
 public:
  /// Throws UsageError for options that make no sense.
  GradScaler(const std::shared_ptr<Device>& device, const GradScalerOptions& options = {});

  /// Makes `optimizer` skip steps in which unscale() found a gradient that is not finite. Before its first
  /// step.
  void attach(Optimizer& optimizer) const;

  /// What to start backward with instead of `weight`: weight · scale, float32 [].
  Tensor scale_seed(double weight) const;
  /// Divides the gradients (those that are defined), of any devices, by the scale, in place, and looks for
  /// what is not finite.
  void unscale(std::span<const Tensor> gradients);
  /// Whether unscale() found something: float32 [1], not 0 then. Ranks that look at parts of the gradients
  /// agree on it (the largest of theirs) between unscale() and the optimizer's step.
  const Tensor& found() const noexcept { return found_; }
  /// Moves the scale. Once a step, after the optimizer.
  void update();

  /// Writes the scale and the steps skipped in the whole run to `to` (f64 [2]) on the device; nothing waits.
  void report(const View& to) const;

  // ---- read by the host: these wait for the device
  double scale() const;
  /// Clean steps in a row since the scale last changed.
  std::int64_t tracker() const;
  /// Steps skipped in the whole run, those before a checkpoint included.
  std::int64_t skipped() const;

  /// "scale", "tracker" and "skipped" as text, for a checkpoint.
  std::map<std::string, std::string> state() const;
  /// Takes it over; before the first step. Throws UsageError for missing or malformed entries.
  void load_state(const std::map<std::string, std::string>& state);

 private:
  LossScaleState views() const;

  LossScaleRule rule_;
  Tensor scale_, tracker_, found_, skipped_;
  std::int64_t skipped_before_ = 0;  ///< in the run that a checkpoint continues
};

}  // namespace dtrain
