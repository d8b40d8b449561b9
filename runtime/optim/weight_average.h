// An average of weights, to be evaluated and kept in their place, as torch.optim.swa_utils.AveragedModel with
// use_buffers=True: an exponential moving average (get_ema_multi_avg_fn(decay)), or the mean of the weights
// at certain times (get_swa_multi_avg_fn(); stochastic weight averaging, Izmailov et al. 2018).
//
//     WeightAverage average(network.state_dict(), {.decay = 0.999});  // or {}, of a mean
//     …                                   // optimizer.step(), then
//     average.update();                   // or, after an epoch, average.add()
//     …                                   // to evaluate
//     average.swap();  evaluate(network);  average.swap();
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// What the average of `tensor` is called among an optimizer's state: "<tensor>.ema".
std::string name_of_average(const std::string& tensor);

/// Takes those of `state` out that are of averages.
NamedTensors take_averages(NamedTensors& state);

struct AverageOptions {
  std::optional<double> decay = {};  ///< of a moving average, in [0, 1]; nothing: a mean
};

/// Used by one thread.
class WeightAverage {
 public:
  /// Of those of `tensors` that are floating, dense parameters, or a rank's parts of them, and buffers, on
  /// any devices. Throws UsageError for another decay.
  WeightAverage(const NamedTensors& tensors, AverageOptions options);

  /// Of what is averaged.
  const NamedTensors& tensors() const noexcept { return tensors_; }
  /// After an update of the weights: average ← decay · average + (1 - decay) · weights; the first time the
  /// weights themselves. Changes no mean. One kernel call for all on a device.
  void update();
  /// Takes the weights as they are into the mean: average ← average + (weights - average) / (count() + 1).
  /// Changes no moving average.
  void add();
  /// Of how many weights this is the mean, for a checkpoint; 0 of a moving average.
  std::int64_t count() const noexcept { return count_; }
  void set_count(std::int64_t count) noexcept { count_ = options_.decay ? 0 : count; }
  /// Exchanges the weights' values and their averages', where there are any yet: between the two calls
  /// nothing else may change either.
  void swap();
  /// Called after each swap(): hands the values on to who has copies of them.
  void on_swap(std::function<void()> hand_on) { hand_on_ = std::move(hand_on); }

  /// "<tensor>.ema" → average, sharing memory; of what update() has seen.
  NamedTensors named_state() const;
  /// Takes over, by copy, what named_state() gave; averages that are not there begin at the next update().
  /// Throws UsageError for a name that is not of `tensors`, or another shape.
  void load_state(const NamedTensors& state);

 private:
  /// average ← average + share · (weights - average)
  void blend(double share);

  NamedTensors tensors_;
  AverageOptions options_;
  std::int64_t count_ = 0;
  std::vector<Tensor> averages_;  ///< of each tensor; undefined until its first update
  std::function<void()> hand_on_;
};

}  // namespace dtrain
