#include "training/log/gpu_peaks.h"

#include <array>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array kGpus = {
    GpuPeaks{"h100", 3.35e12, 55e9, 67e12, 67e12, 495e12, 989e12},
    GpuPeaks{"h200", 4.8e12, 55e9, 67e12, 67e12, 495e12, 989e12},
    GpuPeaks{"a100", 2.04e12, 25e9, 19.5e12, 19.5e12, 156e12, 312e12},
    GpuPeaks{"l4", 0.3e12, 25e9, 0.47e12, 30.3e12, 60e12, 121e12},
    GpuPeaks{"rtx4090", 1.008e12, 25e9, 1.29e12, 82.6e12, 82.6e12, 165e12},
};

/// As the driver calls them. An H100 or H200 for PCIe or NVLink bridges is slower, and not among them; all
/// A100 compute alike.
constexpr std::array<std::pair<std::string_view, std::size_t>, 9> kModels = {{
    {"NVIDIA H100 80GB HBM3", 0},
    {"NVIDIA H200", 1},
    {"NVIDIA A100-SXM4-40GB", 2},
    {"NVIDIA A100-SXM4-80GB", 2},
    {"NVIDIA A100-PCIE-40GB", 2},
    {"NVIDIA A100-PCIE-80GB", 2},
    {"NVIDIA A100 80GB PCIe", 2},
    {"NVIDIA L4", 3},
    {"NVIDIA GeForce RTX 4090", 4},
}};

}  // namespace

const GpuPeaks& gpu_named(std::string_view name, std::string_view option) {
  std::string known;
  for (const GpuPeaks& gpu : kGpus) {
    if (gpu.name == name) return gpu;
    known += (known.empty() ? "" : ", ") + std::string(gpu.name);
  }
  throw UsageError(std::string(option) + ": expected one of " + known + ", got '" + std::string(name) + "'");
}

const GpuPeaks* gpu_of_model(std::string_view model) noexcept {
  for (const auto& [name, gpu] : kModels) {
    if (name == model) return &kGpus.at(gpu);
  }
  return nullptr;
}

}  // namespace dtrain
