// What data sheets say of GPUs, to compare rates with.
#pragma once

#include <string_view>

namespace dtrain {

/// Bytes and floating-point operations a second, dense.
struct GpuPeaks {
  std::string_view name;
  double memory = 0, bus = 0;
  double f64 = 0, f32 = 0, tf32 = 0, half = 0;  ///< half: bf16 and fp16
};

/// "h100" (SXM), "h200", "a100" (80 GB SXM), "l4" or "rtx4090". Throws UsageError that names `option` and
/// lists the names.
const GpuPeaks& gpu_named(std::string_view name, std::string_view option);

/// Those of the GPU whose driver calls it `model` ("NVIDIA H100 80GB HBM3"); null where none of them is that
/// GPU.
const GpuPeaks* gpu_of_model(std::string_view model) noexcept;

}  // namespace dtrain
