// How fast a network learns whose cost is known, as people compare language models.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "training/options/train_config.h"
#include "training/task.h"

namespace dtrain {

struct ModelSpeed {
  TrainingCost cost;        ///< of a sample
  std::int64_t tokens = 0;  ///< that the network was fed, in all starts of the run
  double tokens_per_second = 0;
  double flops_per_second = 0;  ///< by cost.formula
  /// Model FLOPs utilization: the share of what all devices can compute. Nothing where that is not known.
  std::optional<double> mfu;
};

/// Operations a second of the device of that name (Device::name) at the run's precision: --peak-tflops, or as
/// its data sheet says; nothing where neither does.
std::optional<double> peak_flops(const TrainConfig& config, std::string_view device);

/// Of `samples` samples, now `samples_per_second` on `devices` devices of `peak` operations a second each.
ModelSpeed model_speed(const TrainingCost& cost, std::int64_t samples, double samples_per_second,
                       std::optional<double> peak, std::int64_t devices);

}  // namespace dtrain
