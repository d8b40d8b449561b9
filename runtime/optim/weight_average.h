// An exponential moving average of weights, to be evaluated and kept in their place:
// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay) and use_buffers=True.
//
//     WeightAverage average(network.state_dict(), 0.999);
//     …                                   // optimizer.step(), then
//     average.update();
//     …                                   // to evaluate
//     average.swap();  evaluate(network);  average.swap();
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// What the average of `tensor` is called among an optimizer's state: "<tensor>.ema".
std::string name_of_average(const std::string& tensor);

/// Takes those of `state` out that are of averages.
NamedTensors take_averages(NamedTensors& state);

/// Used by one thread.
class WeightAverage {
 public:
  /// Of those of `tensors` that are floating, dense parameters, or a rank's parts of them, and buffers, on
  /// any devices. `decay` is in [0, 1]: UsageError otherwise.
  WeightAverage(const NamedTensors& tensors, double decay);

  /// Of what is averaged.
  const NamedTensors& tensors() const noexcept { return tensors_; }
  /// After an update of the weights: average ← decay · average + (1 - decay) · weights; the first time the
  /// weights themselves. One kernel call for all on a device.
  void update();
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
  NamedTensors tensors_;
  double decay_;
  std::vector<Tensor> averages_;  ///< of each tensor; undefined until its first update
  std::function<void()> hand_on_;
};

}  // namespace dtrain
