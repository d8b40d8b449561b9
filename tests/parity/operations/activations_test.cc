// Activations, softmax over any dimension and cross-entropy with ignored rows beside PyTorch's
// (activations.py).
#include <gtest/gtest.h>

#include "runtime/autograd/ops/activations.h"
#include "tests/parity/operations/parity_table.h"

namespace dtrain {
namespace {

using test::Inputs;

test::Family operations() {
  const auto loss = [](LossReduction reduction, std::int64_t ignored) {
    return [=](const Inputs& in) { return cross_entropy(in[0], in[1], reduction, ignored); };
  };
  return {
      {"leaky_relu 0.2", [](const Inputs& in) { return leaky_relu(in[0], 0.2); }},
      {"prelu channels", [](const Inputs& in) { return prelu(in[0], in[1]); }},
      {"prelu one weight", [](const Inputs& in) { return prelu(in[0], in[1]); }},
      {"silu", [](const Inputs& in) { return silu(in[0]); }},
      {"softplus", [](const Inputs& in) { return softplus(in[0]); }},
      {"softplus beta 3 threshold 6", [](const Inputs& in) { return softplus(in[0], 3, 6); }},
      {"clamp", [](const Inputs& in) { return clamp(in[0], -0.5, 0.25); }},
      {"clamp min", [](const Inputs& in) { return clamp(in[0], 0.1); }},
      {"pow of tensors", [](const Inputs& in) { return pow(in[0], in[1]); }},
      {"softmax dim 1", [](const Inputs& in) { return softmax(in[0], 1); }},
      {"log_softmax dim 0", [](const Inputs& in) { return log_softmax(in[0], 0); }},
      {"argmax dim 1", [](const Inputs& in) { return argmax(in[0], 1); }},
      {"argmax dim 0 keep", [](const Inputs& in) { return argmax(in[0], 0, true); }},
      {"cross_entropy ignore_index", loss(LossReduction::mean, -100)},
      {"cross_entropy ignore_index sum", loss(LossReduction::sum, 2)},
      {"cross_entropy ignore_index none", loss(LossReduction::none, -1)},
      {"gelu_tanh", [](const Inputs& in) { return gelu_tanh(in[0]); }},
  };
}

TEST(OperationParity, Activations) { test::expect_parity("activations", operations()); }

}  // namespace
}  // namespace dtrain
