// Functions of one tensor as modules, for Sequential.
#pragma once

#include "runtime/nn/module.h"

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
};

/// [N, …] → [N, product of the rest]
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x); }
};

}  // namespace dtrain
