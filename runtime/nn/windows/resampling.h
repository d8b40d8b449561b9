// Pooling of sequences and volumes, images of other extents, and borders, as modules.
#pragma once

#include "runtime/autograd/ops/pooling.h"
#include "runtime/autograd/ops/resampling.h"
#include "runtime/nn/convolutions.h"

namespace dtrain {

/// x [N, C, L], see max_pool. Stride 0 means the kernel's size; padding is at most half of it.
class MaxPool1d : public Module {
 public:
  explicit MaxPool1d(std::int64_t kernel, std::int64_t stride = 0, std::int64_t padding = 0,
                     std::int64_t dilation = 1);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  MaxPoolOptions options_;
};

class AvgPool1d : public Module {
 public:
  explicit AvgPool1d(std::int64_t kernel, std::int64_t stride = 0, std::int64_t padding = 0);
  Tensor forward(const Tensor& x) override { return pool1d(x, geometry_); }
  std::string extra_repr() const override;

 private:
  Pool1dGeometry geometry_;
};

/// x [N, C, D, H, W], see max_pool.
class MaxPool3d : public Module {
 public:
  explicit MaxPool3d(KernelVolume kernel, KernelVolume stride = 0, KernelVolume padding = 0,
                     KernelVolume dilation = 1);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  MaxPoolOptions options_;
};

class AvgPool3d : public Module {
 public:
  explicit AvgPool3d(KernelVolume kernel, KernelVolume stride = 0, KernelVolume padding = 0);
  Tensor forward(const Tensor& x) override { return pool3d(x, geometry_); }
  std::string extra_repr() const override;

 private:
  Pool3dGeometry geometry_;
};

/// x [N, C, L] → [N, C, length].
class AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(std::int64_t length) : length_(length) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool1d(x, length_); }
  std::string extra_repr() const override { return "output_size=" + std::to_string(length_); }

 private:
  std::int64_t length_;
};

/// See interpolate.
///
///     Upsample twice({.scale = {2}, .mode = InterpolateMode::linear});
class Upsample : public Module {
 public:
  explicit Upsample(InterpolateOptions options) : options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override { return interpolate(x, options_); }
  std::string extra_repr() const override;

 private:
  InterpolateOptions options_;
};

/// How much a border adds: one number for all sides, or before and after the last dimension, then the one
/// before it.
struct BorderSides {
  Dims amounts;
  BorderSides(std::int64_t all) : amounts{all} {}  // NOLINT(google-explicit-constructor)
  BorderSides(std::initializer_list<std::int64_t> each) : amounts(each) {}
};

/// What borders have in common, see pad.
class Border : public Module {
 public:
  /// Throws UsageError for another rank.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 protected:
  /// Of x [N, C, …] with `dims` dimensions behind C.
  Border(int dims, PadMode mode, const BorderSides& sides, double value = 0);
  const Dims& amounts() const noexcept { return amounts_; }
  double value() const noexcept { return value_; }

 private:
  int dims_;
  PadMode mode_;
  Dims amounts_;
  double value_;
};

class ConstantPad1d : public Border {
 public:
  ConstantPad1d(const BorderSides& sides, double value) : Border(1, PadMode::constant, sides, value) {}
  std::string extra_repr() const override;
};
class ConstantPad2d : public Border {
 public:
  ConstantPad2d(const BorderSides& sides, double value) : Border(2, PadMode::constant, sides, value) {}
  std::string extra_repr() const override;
};
class ZeroPad1d : public Border {
 public:
  explicit ZeroPad1d(const BorderSides& sides) : Border(1, PadMode::constant, sides) {}
};
class ZeroPad2d : public Border {
 public:
  explicit ZeroPad2d(const BorderSides& sides) : Border(2, PadMode::constant, sides) {}
};
class ReflectionPad1d : public Border {
 public:
  explicit ReflectionPad1d(const BorderSides& sides) : Border(1, PadMode::reflect, sides) {}
};
class ReflectionPad2d : public Border {
 public:
  explicit ReflectionPad2d(const BorderSides& sides) : Border(2, PadMode::reflect, sides) {}
};
class ReplicationPad1d : public Border {
 public:
  explicit ReplicationPad1d(const BorderSides& sides) : Border(1, PadMode::replicate, sides) {}
};
class ReplicationPad2d : public Border {
 public:
  explicit ReplicationPad2d(const BorderSides& sides) : Border(2, PadMode::replicate, sides) {}
};

}  // namespace dtrain
