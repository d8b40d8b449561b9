// Normalisation within a sample: over the last dimensions, or over groups of channels.
#pragma once

#include "runtime/nn/module.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

/// See layer_norm. Parameters: weight (1) and bias (0), float32 of `shape`.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Dims& shape, const std::shared_ptr<Device>& device = default_device(),
                     double eps = 1e-5, bool bias = true);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Dims shape_;
  Tensor weight_, bias_;
  double eps_;
};

/// See rms_norm. Parameter: weight (1), float32 of `shape`. The default of eps is torch's for float32.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(const Dims& shape, const std::shared_ptr<Device>& device = default_device(),
                   double eps = 1.1920928955078125e-07);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Dims shape_;
  Tensor weight_;
  double eps_;
};

/// See group_norm. Parameters, if `affine`: weight (1) and bias (0), float32 [channels].
class GroupNorm : public Module {
 public:
  /// Throws UsageError for groups that do not divide the channels.
  GroupNorm(std::int64_t groups, std::int64_t channels,
            const std::shared_ptr<Device>& device = default_device(), double eps = 1e-5, bool affine = true);
  /// Throws UsageError for other channels.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  std::int64_t groups_, channels_;
  Tensor weight_, bias_;
  double eps_;
};

/// See instance_norm. Like PyTorch's it has no parameters unless `affine` (weight, bias [channels]) and
/// always takes the statistics of the sample.
class InstanceNorm : public Module {
 public:
  /// Throws UsageError for another rank and other channels.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 protected:
  InstanceNorm(int rank, std::int64_t channels, const std::shared_ptr<Device>& device, double eps,
               bool affine);

 private:
  int rank_;
  std::int64_t channels_;
  Tensor weight_, bias_;
  double eps_;
};

/// x [N, C, L], [N, C, H, W] and [N, C, D, H, W].
class InstanceNorm1d : public InstanceNorm {
 public:
  explicit InstanceNorm1d(std::int64_t channels, const std::shared_ptr<Device>& device = default_device(),
                          double eps = 1e-5, bool affine = false)
      : InstanceNorm(3, channels, device, eps, affine) {}
};
class InstanceNorm2d : public InstanceNorm {
 public:
  explicit InstanceNorm2d(std::int64_t channels, const std::shared_ptr<Device>& device = default_device(),
                          double eps = 1e-5, bool affine = false)
      : InstanceNorm(4, channels, device, eps, affine) {}
};
class InstanceNorm3d : public InstanceNorm {
 public:
  explicit InstanceNorm3d(std::int64_t channels, const std::shared_ptr<Device>& device = default_device(),
                          double eps = 1e-5, bool affine = false)
      : InstanceNorm(5, channels, device, eps, affine) {}
};

}  // namespace dtrain
