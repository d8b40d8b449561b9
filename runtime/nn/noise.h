// Random numbers in a network's forward that do not depend on which rank computes them, like Dropout's masks.
#pragma once

#include "runtime/nn/dropout.h"

namespace dtrain {

/// A place in a network where random numbers are drawn, keyed as Dropout's masks (DropoutKey): by seed, step,
/// place, sample and element. So they are the same for any number of workers, after any restart, and where a
/// forward is computed again for backward. `dtrain train`'s engine sets step and samples; a loop of your own
/// does as DropoutKey says. Samples are along the first dimension. With a step that was set a place that is
/// asked twice in a pass gives the same numbers: give each place a Noise of its own.
///
///     class Sampled final : public Module {           // the reparametrisation of a variational autoencoder
///      public:
///       explicit Sampled(std::shared_ptr<DropoutKey> key)
///           : noise_(add_module("noise", std::make_shared<Noise>(std::move(key)))) {}
///       Tensor forward(const Tensor& x) override {
///         const Tensor mean = x.slice(1, 0, 8), log_deviation = x.slice(1, 8, 16);
///         return add(mean, mul(exp(log_deviation), noise_->randn_like(mean)));
///       }
///      …
///
/// Numbers are made on the host: on a device that runs ahead each call waits for the step and the samples.
class Noise : public KeyedDraws {
 public:
  /// `key` and `part` as Dropout's. Throws UsageError for a deviation that is negative or not finite.
  explicit Noise(std::shared_ptr<DropoutKey> key, double deviation = 1, int part = 0);

  /// x + deviation · randn_like(x) in training, x in evaluation.
  Tensor forward(const Tensor& x) override;

  // ---- of the shape, dtype and device of `x`, without history; in evaluation too
  /// Uniform in [0, 1), of 24 random bits.
  Tensor rand_like(const Tensor& x);
  /// Normal with mean 0 and deviation 1 (Box and Muller).
  Tensor randn_like(const Tensor& x);
  /// 1 with `probability`, else 0. Throws UsageError for one outside [0, 1].
  Tensor bernoulli_like(const Tensor& x, double probability);

 private:
  enum class Kind : std::uint64_t { uniform = 1, normal };
  Tensor draw(const Tensor& x, Kind kind);

  double deviation_;
};

}  // namespace dtrain
