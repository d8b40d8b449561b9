// Convolutions other than conv2d beside PyTorch's (convolutions.py).
#include <gtest/gtest.h>

#include "tests/parity/operations/parity_table.h"

namespace dtrain {
namespace {

using test::Inputs;

test::Family operations() {
  const auto line = [](const Conv1dGeometry& g) {
    return [g](const Inputs& in) { return conv1d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), g); };
  };
  const auto space = [](const Conv3dGeometry& g) {
    return [g](const Inputs& in) { return conv3d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), g); };
  };
  const auto transposed = [](const Conv2dGeometry& g, std::int64_t padding = 0) {
    return [g, padding](const Inputs& in) {
      return conv_transpose2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), g, padding, padding);
    };
  };
  return {
      {"conv1d", line({})},
      {"conv1d stride 2 padding 1", line({.stride = 2, .pad = 1})},
      {"conv1d dilation 2 groups 2", line({.dilation = 2, .groups = 2})},
      {"conv3d", space({})},
      {"conv3d stride 2 padding 1", space({2, 2, 2, 1, 1, 1})},
      {"conv3d dilation 2 groups 2", space({.dilation_d = 2, .groups = 2})},
      {"conv_transpose2d", transposed({})},
      {"conv_transpose2d stride 2 padding 1 output_padding 1", transposed({2, 2, 1, 1}, 1)},
      {"conv_transpose2d dilation 2 groups 2", transposed({1, 1, 0, 0, 2, 2, 2})},
  };
}

TEST(OperationParity, Convolutions) { test::expect_parity("convolutions", operations()); }

}  // namespace
}  // namespace dtrain
