// Convolutions other than Conv2d (layers.h), with square kernels. Weights are drawn as PyTorch draws them.
#pragma once

#include "runtime/autograd/ops/convolutions.h"
#include "runtime/nn/module.h"

namespace dtrain {

struct Conv1dOptions {
  Conv1dGeometry geometry;
  bool bias = true;
};

/// x [N, in, L] → [N, out, OL], see conv1d. Parameters: weight [out, in / groups, kernel], bias [out].
class Conv1d : public Module {
 public:
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
         const std::shared_ptr<Device>& device, Conv1dOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_;
  Conv1dGeometry geometry_;
};

struct Conv3dOptions {
  Conv3dGeometry geometry;
  bool bias = true;
};

/// x [N, in, D, H, W] → [N, out, OD, OH, OW], see conv3d. Parameters: weight [out, in / groups, kernel,
/// kernel, kernel], bias [out].
class Conv3d : public Module {
 public:
  Conv3d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
         const std::shared_ptr<Device>& device, Conv3dOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_;
  Conv3dGeometry geometry_;
};

struct ConvTranspose2dOptions {
  Conv2dGeometry geometry;
  std::int64_t output_padding = 0;
  bool bias = true;
};

/// x [N, in, H, W] → [N, out, OH, OW], see conv_transpose2d. Parameters: weight [in, out / groups, kernel,
/// kernel], bias [out].
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
                  const std::shared_ptr<Device>& device, ConvTranspose2dOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_;
  ConvTranspose2dOptions options_;
};

}  // namespace dtrain
