#include "training/log/model_speed.h"

#include "training/log/gpu_peaks.h"

namespace dtrain {
namespace {

/// "NVIDIA H100 80GB HBM3" of "cuda:0 (NVIDIA H100 80GB HBM3)".
std::string_view model_of(std::string_view device) {
  const std::size_t open = device.find('('), close = device.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return device.substr(open + 1, close - open - 1);
}

}  // namespace

std::optional<double> peak_flops(const TrainConfig& config, std::string_view device) {
  if (config.peak_tflops) return 1e12 * *config.peak_tflops;
  const GpuPeaks* const gpu = gpu_of_model(model_of(device));
  if (gpu == nullptr) return std::nullopt;
  switch (config.precision) {
    case Precision::bf16:
    case Precision::fp16:
      return gpu->half;
    case Precision::tf32:
      return gpu->tf32;
    case Precision::fp32:
      break;
  }
  return gpu->f32;
}

ModelSpeed model_speed(const TrainingCost& cost, std::int64_t samples, double samples_per_second,
                       std::optional<double> peak, std::int64_t devices) {
  ModelSpeed speed{.cost = cost,
                   .tokens = samples * cost.tokens,
                   .tokens_per_second = samples_per_second * static_cast<double>(cost.tokens),
                   .flops_per_second = samples_per_second * cost.flops,
                   .mfu = {}};
  if (peak) speed.mfu = speed.flops_per_second / (*peak * static_cast<double>(devices));
  return speed;
}

}  // namespace dtrain
