// Optimizers for large batches, whose rate differs from layer to layer: LARS (You, Gitman and Ginsburg 2017)
// and LAMB (You et al. 2020).
#pragma once

#include <set>
#include <string>

#include "runtime/optim/stateful_optimizer.h"

namespace dtrain {

struct LarsOptions {
  double lr = 1e-1;
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 1e-3;  ///< the share of its norm that a layer moves by, at a rate of 1
  bool adapts = true;   ///< false: SGD with momentum, for biases and norms
};

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 1e-2;
  bool adapts = true;  ///< false: AdamW without a layer's rate, for biases and norms
};

/// A step of a layer w with gradient g: d = g + weight_decay · w, scaled by trust · |w| / (|g| + weight_decay
/// · |w|) where neither is 0; momentum on that, as SGD's. State: "<parameter>.momentum_buffer" and the count
/// of steps. Parameters must be whole: a part has another norm. Steps are not for recording.
class Lars : public StatefulOptimizer {
 public:
  /// Throws UsageError naming the option for values outside their range.
  Lars(NamedTensors parameters, const LarsOptions& options);
  explicit Lars(const std::vector<ParameterGroup<LarsOptions>>& groups);

 protected:
  void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
           std::span<const OptimizerSlot> slots) override;

 private:
  std::vector<LarsOptions> options_;  ///< of each group
};

/// A step of a layer w: u = Adam's direction + weight_decay · w, scaled by |w| / |u| where neither is 0.
/// State: "<parameter>.exp_avg", "<parameter>.exp_avg_sq" and the count of steps. Otherwise as Lars.
class Lamb : public StatefulOptimizer {
 public:
  Lamb(NamedTensors parameters, const LambOptions& options);
  explicit Lamb(const std::vector<ParameterGroup<LambOptions>>& groups);

 protected:
  void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
           std::span<const OptimizerSlot> slots) override;

 private:
  std::vector<LambOptions> options_;
};

/// `options` for all parameters, but for those named in `vectors` (names_of_vectors) without a rate of their
/// own and without weight decay, as both papers have it.
template <class Options>
std::vector<ParameterGroup<Options>> layerwise_groups(const NamedTensors& parameters,
                                                      const std::set<std::string>& vectors, Options options) {
  SplitParameters split = split_by_name(parameters, vectors);
  std::vector<ParameterGroup<Options>> groups;
  if (!split.others.empty()) groups.push_back({std::move(split.others), options});
  options.weight_decay = 0;
  options.adapts = false;
  if (!split.named.empty()) groups.push_back({std::move(split.named), options});
  return groups;
}

}  // namespace dtrain
