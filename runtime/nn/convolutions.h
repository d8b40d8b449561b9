// Convolutions other than Conv2d (layers.h). Weights are drawn as PyTorch draws them.
#pragma once

#include "runtime/autograd/ops/convolutions.h"
#include "runtime/nn/layers.h"

namespace dtrain {

struct Conv1dOptions {
  Conv1dGeometry geometry;
  bool bias = true;
};

/// What Conv1d is made with, by name, as Conv2dSettings.
struct Conv1dSettings {
  ByName by_name{};  ///< left out
  std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
};

/// x [N, in, L] → [N, out, OL], see conv1d. Parameters: weight [out, in / groups, kernel], bias [out].
class Conv1d : public Module {
 public:
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device(), Conv1dOptions options = {});
  Conv1d(std::int64_t in, std::int64_t out, const Conv1dSettings& settings,
         Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor weight_, bias_;
  Conv1dGeometry geometry_;
};

/// Frames, rows and columns of a kernel; a number alone is all three.
struct KernelVolume {
  std::int64_t depth, height, width;
  KernelVolume(std::int64_t side)
      : depth(side), height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  KernelVolume(std::int64_t frames, std::int64_t rows, std::int64_t columns)
      : depth(frames), height(rows), width(columns) {}
};

struct Conv3dOptions {
  Conv3dGeometry geometry;
  bool bias = true;
};

/// What Conv3d is made with, by name, as Conv2dSettings.
struct Conv3dSettings {
  ByName by_name{};  ///< left out
  KernelVolume kernel = 1, stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// x [N, in, D, H, W] → [N, out, OD, OH, OW], see conv3d. Parameters: weight [out, in / groups, kernel.depth,
/// kernel.height, kernel.width], bias [out].
class Conv3d : public Module {
 public:
  Conv3d(std::int64_t in, std::int64_t out, KernelVolume kernel, Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device(), Conv3dOptions options = {});
  Conv3d(std::int64_t in, std::int64_t out, const Conv3dSettings& settings,
         Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor weight_, bias_;
  Conv3dGeometry geometry_;
};

/// What ConvTranspose1d is made with, by name, as Conv2dSettings.
struct ConvTranspose1dSettings {
  ByName by_name{};  ///< left out
  std::int64_t kernel = 1, stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1;
  bool bias = true;
};

/// x [N, in, L] → [N, out, OL], see conv_transpose1d. Parameters: weight [in, out / groups, kernel], bias
/// [out].
class ConvTranspose1d : public Module {
 public:
  ConvTranspose1d(std::int64_t in, std::int64_t out, const ConvTranspose1dSettings& settings,
                  Generator& generator = default_generator(),
                  const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor weight_, bias_;
  ConvTranspose1dSettings settings_;
};

struct ConvTranspose2dOptions {
  Conv2dGeometry geometry;
  KernelSize output_padding = 0;
  bool bias = true;
};

/// What ConvTranspose2d is made with, by name, as Conv2dSettings.
struct ConvTranspose2dSettings {
  ByName by_name{};  ///< left out
  KernelSize kernel = 1, stride = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// x [N, in, H, W] → [N, out, OH, OW], see conv_transpose2d. Parameters: weight [in, out / groups,
/// kernel.height, kernel.width], bias [out].
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(std::int64_t in, std::int64_t out, KernelSize kernel,
                  Generator& generator = default_generator(),
                  const std::shared_ptr<Device>& device = default_device(),
                  ConvTranspose2dOptions options = {});
  ConvTranspose2d(std::int64_t in, std::int64_t out, const ConvTranspose2dSettings& settings,
                  Generator& generator = default_generator(),
                  const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor weight_, bias_;
  ConvTranspose2dOptions options_;
};

/// What ConvTranspose3d is made with, by name, as Conv2dSettings.
struct ConvTranspose3dSettings {
  ByName by_name{};  ///< left out
  KernelVolume kernel = 1, stride = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// x [N, in, D, H, W] → [N, out, OD, OH, OW], see conv_transpose3d. Parameters: weight [in, out / groups,
/// kernel.depth, kernel.height, kernel.width], bias [out].
class ConvTranspose3d : public Module {
 public:
  ConvTranspose3d(std::int64_t in, std::int64_t out, const ConvTranspose3dSettings& settings,
                  Generator& generator = default_generator(),
                  const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor weight_, bias_;
  ConvTranspose3dSettings settings_;
};

}  // namespace dtrain
