// Layers with PyTorch's initial weights beside PyTorch's (layers.py).
#include "runtime/nn/layers.h"

#include <gtest/gtest.h>

#include "runtime/nn/convolutions.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/norms.h"
#include "tests/parity/operations/parity_table.h"

namespace dtrain {
namespace {

using test::Inputs;

/// A layer made by `make` with a generator of seed 7.
template <class Make>
auto seeded(Make make) {
  return [make](const Inputs& in) {
    Generator generator(7);
    return make(generator, in[0].shared_device())(in[0]);
  };
}

using Maker = const std::shared_ptr<Device>&;

test::Family layers() {
  return {
      {"Conv1d", seeded([](Generator& g, Maker device) { return Conv1d(3, 4, 3, g, device); })},
      {"Conv1d stride 2 padding 1 no bias", seeded([](Generator& g, Maker device) {
         return Conv1d(4, 6, 3, g, device, {.geometry = {.stride = 2, .pad = 1, .groups = 2}, .bias = false});
       })},
      {"Conv3d", seeded([](Generator& g, Maker device) {
         return Conv3d(2, 3, 2, g, device, {.geometry = {.pad_d = 1, .pad_h = 1, .pad_w = 1}});
       })},
      {"ConvTranspose2d",
       seeded([](Generator& g, Maker device) { return ConvTranspose2d(3, 4, 3, g, device); })},
      {"ConvTranspose2d stride 2 groups 2", seeded([](Generator& g, Maker device) {
         return ConvTranspose2d(
             4, 6, 3, g, device,
             {.geometry = {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1, .groups = 2},
              .output_padding = 1});
       })},
      {"Embedding",
       seeded([](Generator& g, Maker device) { return Embedding(6, 5, g, device, {.padding_index = 1}); })},
      {"LayerNorm", seeded([](Generator&, Maker device) {
         return LayerNorm({2, 3}, device);
       })},
      {"RMSNorm", seeded([](Generator&, Maker device) { return RMSNorm({3}, device); })},
      {"SiLU", seeded([](Generator&, Maker) { return SiLU(); })},
      {"LeakyReLU", seeded([](Generator&, Maker) { return LeakyReLU(0.2); })},
      {"PReLU", seeded([](Generator&, Maker device) { return PReLU(device, 3); })},
      {"Softplus", seeded([](Generator&, Maker) { return Softplus(2, 5); })},
      {"Softmax", seeded([](Generator&, Maker) { return Softmax(0); })},
      {"Sigmoid", seeded([](Generator&, Maker) { return Sigmoid(); })},
      {"Tanh", seeded([](Generator&, Maker) { return Tanh(); })},
      {"GELU", seeded([](Generator&, Maker) { return GELU(); })},
  };
}

TEST(OperationParity, Layers) { test::expect_parity("layers", layers()); }

}  // namespace
}  // namespace dtrain
