// Layers with the weights of torch.manual_seed(7), in float32; and float16 by autocast.
#include "runtime/nn/layers.h"

#include "runtime/autograd/autocast.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/convolutions.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/norms.h"
#include "runtime/nn/recurrent.h"
#include "tests/operations/operations.h"

namespace dtrain::test {
namespace {

/// The layer that `make` makes with a generator of seed 7, of "x".
template <class Make>
Operation layer(Make make) {
  const auto run = [make](const Case& c) {
    Generator generator(7);
    return y(make(c, generator)(c.tensor("x")));
  };
  return {run, Kind::layer};
}

/// One that knows neither weights nor options but `options`.
template <class Layer, class... Options>
Operation plain(Options... options) {
  return layer([options...](const Case&, Generator&) { return Layer(options...); });
}

/// A recurrent one of "x" and the states that the case has.
template <class Layer, class... Options>
Operation recurrent(Options... more) {
  const auto run = [more...](const Case& c) {
    Generator generator(7);
    const RecurrentOptions options{.layers = c.integer("layers", 1),
                                   .bias = c.flag("bias", true),
                                   .batch_first = c.flag("batch_first"),
                                   .bidirectional = c.flag("bidirectional")};
    std::vector<Tensor> inputs{c.tensor("x")};
    for (const char* const state : {"h", "s"}) {
      if (c.tensor(state).defined()) inputs.push_back(c.tensor(state));
    }
    return several(Layer(3, 4, generator, c.device(), options, more...)(inputs));
  };
  return {run, Kind::layer};
}

std::int64_t in(const Case& c) { return c.integer("in", 1); }
std::int64_t out(const Case& c) { return c.integer("out", 1); }
std::int64_t kernel(const Case& c) { return c.integer("kernel", 1); }

void add_convolutions(Table& table) {
  table["Conv1d"] = layer([](const Case& c, Generator& g) {
    return Conv1d(in(c), out(c), kernel(c), g, c.device(),
                  {.geometry = {.stride = c.integer("stride", 1),
                                .pad = c.integer("padding", 0),
                                .groups = c.integer("groups", 1)},
                   .bias = c.flag("bias", true)});
  });
  table["Conv2d"] =
      layer([](const Case& c, Generator& g) { return Conv2d(in(c), out(c), kernel(c), g, c.device()); });
  table["Conv3d"] = layer([](const Case& c, Generator& g) {
    const std::int64_t pad = c.integer("padding", 0);
    return Conv3d(in(c), out(c), kernel(c), g, c.device(),
                  {.geometry = {.pad_d = pad, .pad_h = pad, .pad_w = pad}});
  });
  table["ConvTranspose2d"] = layer([](const Case& c, Generator& g) {
    const std::int64_t stride = c.integer("stride", 1), pad = c.integer("padding", 0);
    return ConvTranspose2d(in(c), out(c), kernel(c), g, c.device(),
                           {.geometry = {.stride_h = stride,
                                         .stride_w = stride,
                                         .pad_h = pad,
                                         .pad_w = pad,
                                         .groups = c.integer("groups", 1)},
                            .output_padding = c.integer("output_padding", 0)});
  });
}

/// What a CPU emulates, and a GPU has.
Results linear_fp16(const Case& c) {
  LowPrecisionWeights weights;
  const Autocast autocast(Precision::fp16, weights);
  return y(linear(c.tensor("x"), c.tensor("weight"), c.tensor("bias")).to(DType::f32));
}

}  // namespace

void add_layers(Table& table) {
  table["linear_fp16"] = {linear_fp16, Kind::layer};
  add_convolutions(table);
  table["Linear"] = layer([](const Case& c, Generator& g) { return Linear(in(c), out(c), g, c.device()); });
  table["Embedding"] = layer([](const Case& c, Generator& g) {
    return Embedding(in(c), out(c), g, c.device(), {.padding_index = c.maybe_integer("padding")});
  });
  table["LayerNorm"] =
      layer([](const Case& c, Generator&) { return LayerNorm(c.dims("shape"), c.device()); });
  table["RMSNorm"] = layer([](const Case& c, Generator&) { return RMSNorm(c.dims("shape"), c.device()); });
  table["BatchNorm2d"] = layer([](const Case& c, Generator&) { return BatchNorm2d(in(c), c.device()); });
  table["PReLU"] = layer([](const Case& c, Generator&) { return PReLU(c.device(), in(c)); });
  table["ReLU"] = plain<ReLU>();
  table["SiLU"] = plain<SiLU>();
  table["LeakyReLU"] = plain<LeakyReLU>(0.2);
  table["Softplus"] = plain<Softplus>(2.0, 5.0);
  table["Softmax"] = plain<Softmax>(0);
  table["Sigmoid"] = plain<Sigmoid>();
  table["Tanh"] = plain<Tanh>();
  table["GELU"] = plain<GELU>();
  table["LSTM"] = recurrent<LSTM>();
  table["GRU"] = recurrent<GRU>();
  table["RNN"] = recurrent<RNN>();
  table["RNN_relu"] = recurrent<RNN>(RnnFunction::relu);
}

}  // namespace dtrain::test
