// Layers with the weights of torch.manual_seed(7), in float32; and float16 by autocast.
#include "runtime/nn/layers.h"

#include "runtime/autograd/autocast.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/convolutions.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/norms.h"
#include "runtime/nn/recurrent.h"
#include "runtime/nn/transformer/transformer_layers.h"
#include "runtime/nn/windows/resampling.h"
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
    Layer layer(3, 4, generator, c.device(), options, more...);
    const Tensor lengths = c.tensor("lengths");
    return several(lengths.defined() ? layer.forward_packed(inputs, lengths) : layer(inputs));
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

Dims sides(const Case& c, const char* option, std::int64_t otherwise) {
  return c.dims(option, {otherwise, otherwise});
}

/// Rectangular kernels, and all that is given by name.
void add_convolutions_by_name(Table& table) {
  const auto size = [](const Dims& dims) { return KernelSize(dims[0], dims[1]); };
  table["Conv2d_by_name"] = layer([size](const Case& c, Generator& g) {
    return Conv2d(in(c), out(c),
                  {.kernel = size(sides(c, "kernel", 1)),
                   .stride = size(sides(c, "stride", 1)),
                   .padding = size(sides(c, "padding", 0)),
                   .dilation = size(sides(c, "dilation", 1)),
                   .groups = c.integer("groups", 1),
                   .bias = c.flag("bias", true)},
                  g, c.device());
  });
  table["Conv1d_by_name"] = layer([](const Case& c, Generator& g) {
    return Conv1d(in(c), out(c), {.kernel = kernel(c), .padding = c.integer("padding", 0), .dilation = 2}, g,
                  c.device());
  });
  table["Conv3d_by_name"] = layer([](const Case& c, Generator& g) {
    const Dims sides = c.dims("kernel"), pads = c.dims("padding");
    return Conv3d(
        in(c), out(c),
        {.kernel = {sides[0], sides[1], sides[2]}, .padding = {pads[0], pads[1], pads[2]}, .bias = false}, g,
        c.device());
  });
  table["ConvTranspose1d"] = layer([](const Case& c, Generator& g) {
    return ConvTranspose1d(in(c), out(c),
                           {.kernel = kernel(c),
                            .stride = c.integer("stride", 1),
                            .padding = c.integer("padding", 0),
                            .output_padding = c.integer("output_padding", 0)},
                           g, c.device());
  });
  table["ConvTranspose3d"] = layer([](const Case& c, Generator& g) {
    const Dims sides = c.dims("kernel"), steps = c.dims("stride", {1, 1, 1});
    return ConvTranspose3d(in(c), out(c),
                           {.kernel = {sides[0], sides[1], sides[2]},
                            .stride = {steps[0], steps[1], steps[2]},
                            .padding = c.integer("padding", 0),
                            .output_padding = c.integer("output_padding", 0),
                            .groups = c.integer("groups", 1)},
                           g, c.device());
  });
  table["ConvTranspose2d_by_name"] = layer([size](const Case& c, Generator& g) {
    return ConvTranspose2d(in(c), out(c),
                           {.kernel = size(sides(c, "kernel", 1)),
                            .stride = size(sides(c, "stride", 1)),
                            .padding = size(sides(c, "padding", 0)),
                            .output_padding = size(sides(c, "output_padding", 0))},
                           g, c.device());
  });
}

void add_norms(Table& table) {
  table["LayerNorm"] =
      layer([](const Case& c, Generator&) { return LayerNorm(c.dims("shape"), c.device()); });
  table["RMSNorm"] = layer([](const Case& c, Generator&) { return RMSNorm(c.dims("shape"), c.device()); });
  table["BatchNorm1d"] = layer([](const Case& c, Generator&) { return BatchNorm1d(in(c), c.device()); });
  table["BatchNorm2d"] = layer([](const Case& c, Generator&) { return BatchNorm2d(in(c), c.device()); });
  table["BatchNorm3d"] = layer([](const Case& c, Generator&) { return BatchNorm3d(in(c), c.device()); });
  table["GroupNorm"] = layer(
      [](const Case& c, Generator&) { return GroupNorm(c.integer("groups", 1), in(c), c.device(), 1e-3); });
  table["InstanceNorm1d"] =
      layer([](const Case& c, Generator&) { return InstanceNorm1d(in(c), c.device()); });
  table["InstanceNorm2d"] =
      layer([](const Case& c, Generator&) { return InstanceNorm2d(in(c), c.device(), 1e-5, true); });
  table["InstanceNorm3d"] =
      layer([](const Case& c, Generator&) { return InstanceNorm3d(in(c), c.device()); });
}

void add_windows(Table& table) {
  table["MaxPool1d"] = plain<MaxPool1d>(3, 2, 1);
  table["AvgPool1d"] = plain<AvgPool1d>(3, 2, 1);
  table["MaxPool3d"] = plain<MaxPool3d>(KernelVolume(1, 2, 2));
  table["AvgPool3d"] = plain<AvgPool3d>(KernelVolume(2, 1, 2));
  table["MaxPool2d"] = plain<MaxPool2d>(KernelSize(3, 2), KernelSize(2), KernelSize(1, 0));
  table["MaxPool1d_dilated"] = plain<MaxPool1d>(2, 1, 1, 2);
  table["MaxPool2d_dilated"] =
      plain<MaxPool2d>(KernelSize(3, 2), KernelSize(1, 2), KernelSize(1), KernelSize(2, 3));
  table["MaxPool3d_dilated"] =
      plain<MaxPool3d>(KernelVolume(2), KernelVolume(1), KernelVolume(0, 1, 0), KernelVolume(2, 3, 1));
  table["AvgPool2d"] = plain<AvgPool2d>(KernelSize(1, 2));
  table["AdaptiveAvgPool1d"] = plain<AdaptiveAvgPool1d>(3);
  table["Upsample"] = plain<Upsample>(InterpolateOptions{.scale = {2}, .mode = InterpolateMode::linear});
  table["ConstantPad1d"] = plain<ConstantPad1d>(BorderSides(1), 0.5);
  table["ConstantPad2d"] = plain<ConstantPad2d>(BorderSides{1, 2, 0, 1}, 0.5);
  table["ZeroPad1d"] = plain<ZeroPad1d>(BorderSides(1));
  table["ZeroPad2d"] = plain<ZeroPad2d>(BorderSides(1));
  table["ReflectionPad1d"] = plain<ReflectionPad1d>(BorderSides{1, 2});
  table["ReflectionPad2d"] = plain<ReflectionPad2d>(BorderSides{1, 2, 0, 1});
  table["ReplicationPad1d"] = plain<ReplicationPad1d>(BorderSides(2));
  table["ReplicationPad2d"] = plain<ReplicationPad2d>(BorderSides{1, 0, 2, 3});
}

/// What the "masks" of a case are: tensors of 0 and 1, which is true, and numbers to be added.
Tensor mask_of(const Case& c, const char* name) {
  const Tensor mask = c.tensor(name);
  return mask.defined() && mask.dtype() == DType::i64 ? mask != 0 : mask;
}

Results multihead_attention_case(const Case& c) {
  Generator generator(7);
  MultiheadAttention attention(4, 2,
                               {.bias = c.flag("bias", true),
                                .key_width = c.integer("key_width", 0),
                                .value_width = c.integer("value_width", 0),
                                .batch_first = c.flag("batch_first")},
                               generator, c.device());
  const Tensor query = c.tensor("query"), key = c.tensor("key"), value = c.tensor("value");
  const Attended attended =
      attention.attend(query, key.defined() ? key : query, value.defined() ? value : query,
                       {.key_padding_mask = mask_of(c, "padding"),
                        .attention_mask = mask_of(c, "mask"),
                        .causal = c.flag("causal"),
                        .need_weights = c.flag("need_weights"),
                        .average_weights = c.flag("average", true)});
  if (!attended.weights.defined()) return y(attended.output);
  return several({attended.output, attended.weights});
}

TransformerLayerOptions transformer_options(const Case& c) {
  return {.feed_forward = 6,
          .activation = c.flag("gelu") ? FeedForwardActivation::gelu : FeedForwardActivation::relu,
          .batch_first = c.flag("batch_first"),
          .norm_first = c.flag("norm_first"),
          .bias = c.flag("bias", true)};
}

void add_transformers(Table& table) {
  table["MultiheadAttention"] = {multihead_attention_case, Kind::layer};
  table["TransformerEncoderLayer"] = {
      [](const Case& c) {
        Generator generator(7);
        TransformerEncoderLayer layer(4, 2, transformer_options(c), generator, c.device());
        return y(layer.encode(c.tensor("x"), {mask_of(c, "mask"), mask_of(c, "padding"), c.flag("causal")}));
      },
      Kind::layer};
  table["TransformerDecoderLayer"] = {
      [](const Case& c) {
        Generator generator(7);
        TransformerDecoderLayer layer(4, 2, transformer_options(c), generator, c.device());
        return several(layer(Tensors{c.tensor("x"), c.tensor("memory"), mask_of(c, "mask"),
                                     mask_of(c, "memory_mask"), mask_of(c, "padding")}));
      },
      Kind::layer};
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
  add_convolutions_by_name(table);
  add_norms(table);
  add_windows(table);
  add_transformers(table);
  table["Linear"] = layer([](const Case& c, Generator& g) { return Linear(in(c), out(c), g, c.device()); });
  table["Embedding"] = layer([](const Case& c, Generator& g) {
    return Embedding(in(c), out(c), g, c.device(), {.padding_index = c.maybe_integer("padding")});
  });
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
