// Small networks of all kinds of operations, as ONNX files beside an input and what dtrain makes of it: for
// tests/onnx/compare.py, which lets ONNX Runtime do the same.
//
// usage: dtrain_onnx_cases FOLDER
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/rotary.h"
#include "runtime/nn/activations.h"
#include "runtime/nn/convolutions.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/norms.h"
#include "runtime/nn/recurrent.h"
#include "runtime/nn/transformer/transformer_layers.h"
#include "runtime/nn/windows/resampling.h"
#include "runtime/onnx/export.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using DevicePtr = std::shared_ptr<Device>;

/// A module that is one function, and perhaps a layer in it.
class Function final : public Module {
 public:
  using Body = std::function<Tensor(const Tensor&)>;
  explicit Function(Body body, const std::shared_ptr<Module>& layer = nullptr) : body_(std::move(body)) {
    if (layer) add_module("layer", layer);
  }
  Tensor forward(const Tensor& x) override { return body_(x); }

 private:
  Body body_;
};

struct Case {
  std::string name;
  OnnxInput input;
  std::function<std::shared_ptr<Module>(Generator&, const DevicePtr&)> make;
};

/// A case without parameters.
Case plain(std::string name, Dims shape, Function::Body body) {
  return {std::move(name), {.name = "x", .shape = shape}, [body](Generator&, const DevicePtr&) {
            return std::make_shared<Function>(body);
          }};
}

/// A case of one layer, and perhaps what comes behind it.
template <class Make>
Case layer(std::string name, Dims shape, Make make) {
  return {
      std::move(name), {.name = "x", .shape = shape}, [make](Generator& generator, const DevicePtr& device) {
        return std::static_pointer_cast<Module>(make(generator, device));
      }};
}

Tensor number(const Tensor& x, double value) { return Tensor::full({}, value, x.shared_device()); }

std::vector<Case> functions() {
  return {
      plain("activations", {3, 7},
            [](const Tensor& x) {
              const Tensor y = add(x * 6.0, -3.0);
              return cat({relu(y), sigmoid(y), tanh(y), gelu(y), gelu_tanh(y), silu(y), softsign(y),
                          leaky_relu(y, 0.1), softplus(y, 2, 1), clamp(y, -1, 1.5),
                          clamp(y, std::nullopt, 0.5), abs(y), neg(y), square(y), exp(y)},
                         1);
            }),
      plain("elementary", {3, 7},
            [](const Tensor& x) {
              const Tensor y = add(x * 8.0, -4.0);
              return cat({sin(y), cos(y), erf(y), expm1(y), log1p(x), floor(y), ceil(y), round(y), trunc(y),
                          sign(y)},
                         1);
            }),
      plain("resampled", {3, 4, 6},
            [](const Tensor& x) {
              const Tensor near = interpolate(x, {.scale = {2}}),
                           between = interpolate(x, {.size = {7, 3}, .mode = InterpolateMode::linear});
              return cat(
                  {near.flatten(1), between.flatten(1), pad(x, {2, 1, 1, 0}, PadMode::reflect).flatten(1),
                   pad(x, {1, 2}, PadMode::replicate).flatten(1)},
                  1);
            }),
      plain("pooled volumes", {2, 4, 4, 6},
            [](const Tensor& x) {
              const Tensor most = pool3d(x, {}), means = pool3d(x, {.kind = PoolKind::avg});
              const Tensor lines = pool1d(x.flatten(2), {.kernel = 3, .stride = 2, .pad = 1});
              return cat({most.flatten(1), means.flatten(1), lines.flatten(1)}, 1);
            }),
      plain("roots", {5},
            [](const Tensor& x) {
              const Tensor y = add(x, 0.5);
              return stack({sqrt(y), rsqrt(y), log(y), reciprocal(y), pow(y, y)}, 1);
            }),
      plain("arithmetic", {4, 6},
            [](const Tensor& x) {
              const Tensor row = x.slice(1, 0, 1), column = x.slice(2, 2, 3);
              const Tensor mixed = div(sub(mul(x, row), column), add(row, 2.0));
              return where(greater(mixed, number(x, 0.1)), maximum(mixed, column), minimum(mixed, x));
            }),
      plain("views", {4, 6},
            [](const Tensor& x) {
              const Tensor turned = x.transpose(1, 2).slice(1, 1, 6, 2);  // [B, 3, 4], strided
              const Tensor picked = turned.reshape({x.size(0), 12});
              return cat({picked, x.select(1, 2), x.flatten(1).slice(1, 3, 20, 4)}, 1);
            }),
      plain("parts", {8, 2},
            [](const Tensor& x) {
              const Tensors parts = chunk(x, 4, 1);
              return stack({parts[3], parts[1], parts[0]}, 2).permute({0, 3, 1, 2}).contiguous();
            }),
      plain("borders", {2, 3, 4},
            [](const Tensor& x) {
              const Tensor wide = pad(x, {1, 2, 0, 1}, -0.5), low = pad(x, {0, 0, 2, 0}, 2);
              return cat({wide.flatten(1), low.flatten(1)}, 1);
            }),
      plain("reductions", {3, 5, 4},
            [](const Tensor& x) {
              const Tensor all = sum(x, {1, 3}, true), means = mean(x, {2}, true);
              return add(sub(x, means), all);
            }),
      plain("softmax", {3, 5},
            [](const Tensor& x) {
              return add(softmax(x, -1), log_softmax(x.transpose(1, 2), -1).transpose(1, 2));
            }),
      plain("products", {4, 6},
            [](const Tensor& x) { return matmul(matmul(x, x.transpose(1, 2)), x) * 0.25; }),
      plain(
          "attention", {2, 5, 8},
          [](const Tensor& x) { return scaled_dot_product_attention(x, x * 2.0, x, {}, {.causal = true}); }),
      plain("rotary", {5, 2, 8},
            [](const Tensor& x) {
              const auto table = [&](float first) {
                std::vector<float> values;
                for (int i = 0; i < 15; ++i) values.push_back(first + 0.1F * static_cast<float>(i));
                return Tensor::from_data(values, {5, 3}, x.shared_device());
              };
              const Tensor heads = x.transpose(1, 2),
                           turned = rotary_embedding(heads, table(-1), table(0.5F));
              return add(turned, rotary_embedding(heads, table(0.25F), table(-0.5F), true));
            }),
      plain("attention of shared keys", {5, 16},
            [](const Tensor& x) {
              return packed_attention(x, {.heads = 2, .key_heads = 1}, {.causal = true});
            }),
      plain("pooled", {3, 9, 12},
            [](const Tensor& x) {
              const Tensor a = pool2d(x, {PoolKind::max, 3, 3, 2, 2, 1, 1}), b = avg_pool2d(x, 3);
              return cat({a.flatten(1), b.flatten(1), adaptive_avg_pool2d(x, 3, 4).flatten(1),
                          adaptive_avg_pool2d(x, 2, 5).flatten(1)},
                         1);
            }),
  };
}

std::vector<Case> layers() {
  return {
      layer("linear", {3, 7},
            [](Generator& g, const DevicePtr& d) {
              return std::make_shared<Linear>(7, 5, g, d, LinearOptions{.activation = Activation::relu});
            }),
      layer("conv", {4, 9, 8},
            [](Generator& g, const DevicePtr& d) {
              Conv2dOptions options;
              options.activation = Activation::relu;
              options.geometry = {2, 1, 1, 2, 1, 2, 2};
              return std::make_shared<Conv2d>(4, 6, 3, g, d, options);
            }),
      layer("conv1d", {4, 20},
            [](Generator& g, const DevicePtr& d) { return std::make_shared<Conv1d>(4, 3, 5, g, d); }),
      layer("conv3d", {2, 5, 6, 4},
            [](Generator& g, const DevicePtr& d) { return std::make_shared<Conv3d>(2, 3, 3, g, d); }),
      layer("conv_transpose", {4, 5, 6},
            [](Generator& g, const DevicePtr& d) {
              ConvTranspose2dOptions options;
              options.geometry.stride_h = options.geometry.stride_w = 2;
              return std::make_shared<ConvTranspose2d>(4, 3, 3, g, d, options);
            }),
      layer("batch_norm", {4, 5, 6},
            [](Generator&, const DevicePtr& d) { return std::make_shared<BatchNorm2d>(4, d); }),
      layer("batch_norm1d", {4, 5},
            [](Generator&, const DevicePtr& d) { return std::make_shared<BatchNorm1d>(4, d); }),
      layer("group_norm", {6, 5, 4},
            [](Generator&, const DevicePtr& d) { return std::make_shared<GroupNorm>(3, 6, d); }),
      layer(
          "instance_norm", {4, 5, 6},
          [](Generator&, const DevicePtr& d) { return std::make_shared<InstanceNorm2d>(4, d, 1e-5, true); }),
      layer("conv_transpose1d", {4, 6},
            [](Generator& g, const DevicePtr& d) {
              return std::make_shared<ConvTranspose1d>(
                  4, 3, ConvTranspose1dSettings{.kernel = 3, .stride = 2}, g, d);
            }),
      layer("dilated_max_pool", {3, 7, 8},
            [](Generator&, const DevicePtr&) { return std::make_shared<MaxPool2d>(3, 1, 1, 2); }),
      layer("bicubic", {2, 4, 5},
            [](Generator&, const DevicePtr&) {
              return std::make_shared<Upsample>(
                  InterpolateOptions{.scale = {2}, .mode = InterpolateMode::bicubic});
            }),
      layer("encoder", {5, 8},
            [](Generator& g, const DevicePtr& d) {
              const TransformerLayerOptions options{
                  .feed_forward = 12, .activation = FeedForwardActivation::gelu, .batch_first = true};
              return std::make_shared<TransformerEncoderLayer>(8, 2, options, g, d);
            }),
      layer("layer_norm", {5, 8},
            [](Generator&, const DevicePtr& d) { return std::make_shared<LayerNorm>(Dims{8}, d); }),
      layer("rms_norm", {5, 8},
            [](Generator&, const DevicePtr& d) { return std::make_shared<RMSNorm>(Dims{8}, d); }),
      layer("prelu", {4, 5}, [](Generator&, const DevicePtr& d) { return std::make_shared<PReLU>(d, 4); }),
      layer("lstm", {6, 5},
            [](Generator& g, const DevicePtr& d) {
              return std::make_shared<LSTM>(5, 4, g, d, RecurrentOptions{.layers = 2, .batch_first = true});
            }),
      layer("gru", {6, 5},
            [](Generator& g, const DevicePtr& d) {
              return std::make_shared<GRU>(5, 4, g, d,
                                           RecurrentOptions{.batch_first = true, .bidirectional = true});
            }),
      {"embedding",
       {.name = "tokens", .dtype = DType::i64, .shape = {6}, .values = 11},
       [](Generator& g, const DevicePtr& d) {
         const auto table = std::make_shared<Embedding>(11, 4, g, d);
         return std::make_shared<Function>([table](const Tensor& x) { return mean((*table)(x), {1}); },
                                           table);
       }},
  };
}

template <class T>
void write_npy(const fs::path& path, const std::string& descr, const Tensor& tensor) {
  std::string shape = "(";
  for (const std::int64_t extent : tensor.shape()) shape += std::to_string(extent) + ", ";
  const std::string bytes = test::npy_bytes(descr, shape + ")", tensor.to_vector<T>());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

Tensor some_input(const OnnxInput& input, std::int64_t samples, const DevicePtr& device) {
  Generator generator(7);
  Dims shape = {samples};
  for (const std::int64_t extent : input.shape) shape.push_back(extent);
  const Tensor random = Tensor::rand(shape, generator, device);
  return is_floating(input.dtype) ? random : (random * static_cast<double>(input.values)).to(input.dtype);
}

void write_case(const Case& each, const fs::path& folder) {
  const NoGrad no_grad;
  const DevicePtr device = make_trace_device();
  Generator generator(3);
  const auto network = each.make(generator, device);
  network->eval();
  const auto forward = [&](const Tensors& x) { return Tensors{network->forward(x[0])}; };
  const std::string file =
      export_onnx(device, network->state_dict(), {each.name, {each.input}, {"y"}}, forward);
  std::ofstream(folder / (each.name + ".onnx"), std::ios::binary)
      .write(file.data(), static_cast<std::streamsize>(file.size()));
  constexpr std::int64_t kOtherSamples = 4;
  const Tensor x = some_input(each.input, kOtherSamples, device), y = forward({x})[0];
  if (is_floating(x.dtype())) {
    write_npy<float>(folder / (each.name + ".x.npy"), "<f4", x);
  } else {
    write_npy<std::int64_t>(folder / (each.name + ".x.npy"), "<i8", x);
  }
  write_npy<float>(folder / (each.name + ".y.npy"), "<f4", y);
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: dtrain_onnx_cases FOLDER\n"), 2;
  try {
    for (const auto& group : {dtrain::functions(), dtrain::layers()}) {
      for (const dtrain::Case& each : group) {
        std::fprintf(stderr, "%s\n", each.name.c_str());
        dtrain::write_case(each, argv[1]);
      }
    }
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
  return 0;
}
