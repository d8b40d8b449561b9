// Functions of one tensor as modules, for Sequential.
#pragma once

#include "runtime/autograd/ops/activations.h"
#include "runtime/nn/module.h"
#include "runtime/nn/print.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
  std::string extra_repr() const override { return "approximate='none'"; }
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, negative_slope_); }
  std::string extra_repr() const override { return "negative_slope=" + repr::number(negative_slope_); }

 private:
  double negative_slope_;
};

/// Parameter: weight [channels], or [1] for one slope, which starts at `initial`.
class PReLU : public Module {
 public:
  explicit PReLU(const std::shared_ptr<Device>& device = default_device(), std::int64_t channels = 1,
                 double initial = 0.25)
      : weight_(add_parameter("weight", Tensor::full({channels}, initial, device))) {}
  Tensor forward(const Tensor& x) override { return prelu(x, weight_); }
  std::string extra_repr() const override { return "num_parameters=" + std::to_string(weight_.numel()); }

 private:
  Tensor weight_;
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }
  std::string extra_repr() const override {
    return "beta=" + repr::number(beta_) + ", threshold=" + repr::number(threshold_);
  }

 private:
  double beta_, threshold_;
};

class Softmax : public Module {
 public:
  explicit Softmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmax(x, dim_); }
  std::string extra_repr() const override { return "dim=" + std::to_string(dim_); }

 private:
  int dim_;
};

/// [N, …] → [N, product of the rest]
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x); }
  std::string extra_repr() const override { return "start_dim=1, end_dim=-1"; }
};

}  // namespace dtrain
