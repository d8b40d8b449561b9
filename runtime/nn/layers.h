// Dense and convolutional layers, pooling and batch norm. Weights are drawn as PyTorch draws them: with the
// generator seeded as torch.manual_seed and layers constructed in the same order, they are equal bit for bit.
#pragma once

#include <optional>

#include "runtime/autograd/ops/pooling.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/containers.h"
#include "runtime/nn/module.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

struct LinearOptions {
  bool bias = true;
  /// Applied to the result in the same kernel.
  Activation activation = Activation::none;
};

/// x [..., in] → [..., out]. Parameters: weight [out, in], bias [out], float32.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device(), LinearOptions options = {});
  Linear(std::int64_t in, std::int64_t out, LinearOptions options, Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device())
      : Linear(in, out, generator, device, options) {}
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  const Tensor& weight() const noexcept { return weight_; }
  /// Undefined where it has none.
  const Tensor& bias() const noexcept { return bias_; }

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

/// First member of settings that are given by name: nothing converts to it, so that a list of numbers is none
/// of them.
struct ByName {
  explicit ByName() = default;
};

/// Rows and columns of a kernel; a number alone is both.
struct KernelSize {
  std::int64_t height, width;
  KernelSize(std::int64_t side) : height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  KernelSize(std::int64_t rows, std::int64_t columns) : height(rows), width(columns) {}
};

/// What a convolution is made with, by name as in PyTorch:
///
///     Conv2d conv(3, 64, {.kernel = 3, .padding = 1});      // weights of default_generator(), on
///     default_device() Conv2d wide(64, 64, {.kernel = {1, 7}, .padding = {0, 3}, .bias = false}, generator,
///     device);
struct Conv2dSettings {
  ByName by_name{};  ///< left out
  KernelSize kernel = 1, stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation = Activation::none;
};

/// x [N, in, H, W] → [N, out, OH, OW], or the pooled extents. Parameters: weight [out, in / groups,
/// kernel.height, kernel.width], bias [out].
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, KernelSize kernel, Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device(), Conv2dOptions options = {});
  Conv2d(std::int64_t in, std::int64_t out, const Conv2dSettings& settings,
         Generator& generator = default_generator(),
         const std::shared_ptr<Device>& device = default_device());
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  const Tensor& weight() const noexcept { return weight_; }
  /// Undefined where it has none.
  const Tensor& bias() const noexcept { return bias_; }
  const Conv2dOptions& options() const noexcept { return options_; }

 private:
  Tensor weight_, bias_;
  Conv2dOptions options_;
};

/// Stride 0 means the kernel's size; `dilation` is the distance of a window's elements, see max_pool.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(KernelSize kernel, KernelSize stride = 0, KernelSize padding = 0,
                     KernelSize dilation = 1);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  MaxPoolOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(KernelSize kernel, KernelSize stride = 0, KernelSize padding = 0);
  Tensor forward(const Tensor& x) override { return pool2d(x, geometry_); }
  std::string extra_repr() const override;

 private:
  Pool2dGeometry geometry_;
};

/// Average over parts of the image: [N, C, H, W] → [N, C, height, width].
class AdaptiveAvgPool2d : public Module {
 public:
  AdaptiveAvgPool2d(std::int64_t height, std::int64_t width) : height_(height), width_(width) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, height_, width_); }
  std::string extra_repr() const override;

 private:
  std::int64_t height_, width_;
};

/// Batch norm of each channel, whatever the rank. Parameters: weight (1) and bias (0), float32 [features];
/// buffers: running_mean (0), running_var (1) and num_batches_tracked (int64 []). In training the statistics
/// are those of the batch this rank sees and the running ones follow; in evaluation the running ones are
/// used. A forward that is computed again for backward leaves the running ones and the count alone.
class BatchNorm : public Module {
 public:
  /// From now on training takes the statistics of the whole batch, of which each peer has a part: every rank
  /// must run forward and backward alike. Null: this rank's part alone again.
  void synchronize(std::shared_ptr<BatchPeers> peers) { peers_ = std::move(peers); }
  std::string extra_repr() const override;

 protected:
  /// Throws UsageError naming `layer` for less than one feature.
  BatchNorm(std::string_view layer, std::int64_t features, const std::shared_ptr<Device>& device, double eps,
            double momentum);
  /// activation(norm(x) + residual) of x [N, C, H, W] in one kernel.
  Tensor normalize(const Tensor& x, Activation activation = Activation::none, const Tensor& residual = {});

 private:
  /// Whether this is the second run of a forward that is computed again; counts the batch where it is not.
  bool begin_batch();

  Tensor weight_, bias_, running_mean_, running_var_, batches_;
  double eps_, momentum_;
  std::shared_ptr<BatchPeers> peers_;
};

/// x [N, features] or [N, features, L].
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(std::int64_t features, const std::shared_ptr<Device>& device = default_device(),
                       double eps = 1e-5, double momentum = 0.1)
      : BatchNorm("BatchNorm1d", features, device, eps, momentum) {}
  /// Throws UsageError for another rank.
  Tensor forward(const Tensor& x) override;
};

/// x [N, features, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(std::int64_t features, const std::shared_ptr<Device>& device = default_device(),
                       double eps = 1e-5, double momentum = 0.1)
      : BatchNorm("BatchNorm2d", features, device, eps, momentum) {}
  Tensor forward(const Tensor& x) override { return normalize(x); }
  /// activation(norm(x) + residual) in the same kernel; `residual` has x's shape, or is undefined.
  Tensor forward(const Tensor& x, Activation activation, const Tensor& residual = {}) {
    return normalize(x, activation, residual);
  }
};

/// x [N, features, D, H, W].
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(std::int64_t features, const std::shared_ptr<Device>& device = default_device(),
                       double eps = 1e-5, double momentum = 0.1)
      : BatchNorm("BatchNorm3d", features, device, eps, momentum) {}
  /// Throws UsageError for another rank.
  Tensor forward(const Tensor& x) override { return forward(x, Activation::none); }
  /// activation(norm(x) + residual) in the same kernel; `residual` has x's shape, or is undefined.
  Tensor forward(const Tensor& x, Activation activation, const Tensor& residual = {});
};

/// Calls BatchNorm::synchronize on every batch norm in `module`; returns how many there are.
int synchronize_batch_norms(Module& module, const std::shared_ptr<BatchPeers>& peers);

}  // namespace dtrain
