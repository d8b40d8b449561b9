// Dense and convolutional layers, pooling and batch norm. Weights are drawn as PyTorch draws them: with the
// generator seeded as torch.manual_seed and layers constructed in the same order, they are equal bit for bit.
#pragma once

#include <optional>

#include "runtime/nn/activations.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/module.h"

namespace dtrain {

struct LinearOptions {
  bool bias = true;
  /// Applied to the result in the same kernel.
  Activation activation = Activation::none;
};

/// x [..., in] → [..., out]. Parameters: weight [out, in], bias [out], float32.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, Generator& generator, const std::shared_ptr<Device>& device,
         LinearOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Tensor weight_, bias_;
  Activation activation_;
};

struct Conv2dOptions {
  Conv2dGeometry geometry;
  bool bias = true;
  Activation activation = Activation::none;
  /// Pools the activation, in the same kernel where there is one (relu, then windows that do not overlap).
  std::optional<Pool2dGeometry> pool = std::nullopt;
};

/// Rows and columns of a kernel; a number alone is both.
struct KernelSize {
  std::int64_t height, width;
  KernelSize(std::int64_t side) : height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  KernelSize(std::int64_t rows, std::int64_t columns) : height(rows), width(columns) {}
};

/// x [N, in, H, W] → [N, out, OH, OW], or the pooled extents. Parameters: weight [out, in / groups,
/// kernel.height, kernel.width], bias [out].
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, KernelSize kernel, Generator& generator,
         const std::shared_ptr<Device>& device, Conv2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  const Tensor& weight() const noexcept { return weight_; }
  /// Undefined where it has none.
  const Tensor& bias() const noexcept { return bias_; }
  const Conv2dOptions& options() const noexcept { return options_; }

 private:
  Tensor weight_, bias_;
  Conv2dOptions options_;
};

/// Square windows; stride 0 means the kernel's size.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(std::int64_t kernel, std::int64_t stride = 0, std::int64_t padding = 0);
  Tensor forward(const Tensor& x) override { return pool2d(x, geometry_); }

 private:
  Pool2dGeometry geometry_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(std::int64_t kernel, std::int64_t stride = 0, std::int64_t padding = 0);
  Tensor forward(const Tensor& x) override { return pool2d(x, geometry_); }

 private:
  Pool2dGeometry geometry_;
};

/// Average over parts of the image: [N, C, H, W] → [N, C, height, width].
class AdaptiveAvgPool2d : public Module {
 public:
  AdaptiveAvgPool2d(std::int64_t height, std::int64_t width) : height_(height), width_(width) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, height_, width_); }

 private:
  std::int64_t height_, width_;
};

/// x [N, features, H, W], each channel normalised. Parameters: weight (1) and bias (0), float32 [features];
/// buffers: running_mean (0), running_var (1) and num_batches_tracked (int64 []). In training the statistics
/// are those of the batch this rank sees and the running ones follow; in evaluation the running ones are
/// used. A forward that is computed again for backward leaves the running ones and the count alone.
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(std::int64_t features, const std::shared_ptr<Device>& device, double eps = 1e-5,
              double momentum = 0.1);
  Tensor forward(const Tensor& x) override { return forward(x, Activation::none); }
  /// activation(norm(x) + residual) in the same kernel; `residual` has x's shape, or is undefined.
  Tensor forward(const Tensor& x, Activation activation, const Tensor& residual = {});
  /// From now on training takes the statistics of the whole batch, of which each peer has a part: every rank
  /// must run forward and backward alike. Null: this rank's part alone again.
  void synchronize(std::shared_ptr<BatchPeers> peers) { peers_ = std::move(peers); }

 private:
  /// Whether this is the second run of a forward that is computed again; counts the batch where it is not.
  bool begin_batch();

  Tensor weight_, bias_, running_mean_, running_var_, batches_;
  double eps_, momentum_;
  std::shared_ptr<BatchPeers> peers_;
};

/// Calls BatchNorm2d::synchronize on every batch norm in `module`; returns how many there are.
int synchronize_batch_norms(Module& module, const std::shared_ptr<BatchPeers>& peers);

}  // namespace dtrain
