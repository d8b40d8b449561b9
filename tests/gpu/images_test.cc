// Convolution, pooling and normalisation of the CUDA device against the CPU's in float64.
#include <gtest/gtest.h>

#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

struct Case {
  const char* name;
  std::int64_t n, c, h, w, o, kh, kw;
  Conv2dGeometry geometry;

  Dims input() const { return {n, c, h, w}; }
  Dims weight() const { return {o, c / geometry.groups, kh, kw}; }
  Dims output() const {
    const auto extent = [](auto in, auto k, auto s, auto p, auto d) {
      return (in + 2 * p - d * (k - 1) - 1) / s + 1;
    };
    return {n, o, extent(h, kh, geometry.stride_h, geometry.pad_h, geometry.dilation_h),
            extent(w, kw, geometry.stride_w, geometry.pad_w, geometry.dilation_w)};
  }
};

const Case kCases[] = {
    {"lenet1", 4, 1, 28, 28, 20, 3, 3, {}},
    {"lenet2", 3, 20, 13, 13, 50, 5, 5, {}},
    {"resnet", 2, 64, 14, 14, 64, 3, 3, {.pad_h = 1, .pad_w = 1}},
    {"shortcut", 2, 64, 14, 14, 128, 1, 1, {.stride_h = 2, .stride_w = 2}},
    {"stem", 2, 3, 32, 32, 64, 7, 7, {.stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 3}},
    {"odd", 3, 3, 11, 7, 5, 3, 2, {}},
    {"dilated", 2, 3, 12, 13, 4, 3, 3, {.dilation_h = 2, .dilation_w = 3}},
    {"grouped", 2, 8, 9, 9, 12, 3, 3, {.pad_h = 1, .pad_w = 1, .groups = 4}},
};

class GpuImages : public testing::Test {
 protected:
  void check(const std::vector<Arg>& args, std::int64_t terms, const std::string& what, const Call& call) {
    for (const DType dtype : kFloats) compare(*gpu, dtype, args, bound_of(dtype, terms), what, call);
  }
  Arg channels(std::int64_t count) {
    Arg arg = random_arg({count}, generator);
    arg.follows = false;
    return arg;
  }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{11};
};

TEST_F(GpuImages, ConvolutionAndItsGradients) {
  for (const Case& c : kCases) {
    for (const Layout layout : {Layout::channels_last, Layout::contiguous}) {
      const std::int64_t terms = c.c / c.geometry.groups * c.kh * c.kw;
      for (const Activation activation : {Activation::none, Activation::relu}) {
        check({random_arg(c.input(), generator, layout), random_arg(c.weight(), generator),
               random_arg({c.o}, generator), zeros_arg(c.output(), layout)},
              terms, std::string("conv2d ") + c.name, [&](Kernels& kernels, const std::vector<View>& v) {
                kernels.conv2d(c.geometry, v[0], v[1], v[2], activation, v[3]);
              });
      }
      check({random_arg(c.output(), generator, layout), random_arg(c.weight(), generator),
             zeros_arg(c.input(), layout)},
            c.o * c.kh * c.kw, std::string("conv2d_backward_input ") + c.name,
            [&](Kernels& kernels, const std::vector<View>& v) {
              kernels.conv2d_backward_input(c.geometry, v[0], v[1], v[2]);
            });
      const Dims out = c.output();
      check({random_arg(c.input(), generator, layout), random_arg(out, generator, layout),
             zeros_arg(c.weight()), zeros_arg({c.o})},
            out[0] * out[2] * out[3], std::string("conv2d_backward_weight ") + c.name,
            [&](Kernels& kernels, const std::vector<View>& v) {
              kernels.conv2d_backward_weight(c.geometry, v[0], v[1], v[2], v[3]);
            });
    }
  }
}

// Pooling is compared in float32 and float64: in bfloat16 sums of two windows round elsewhere.
TEST_F(GpuImages, PoolingAndItsGradient) {
  for (const PoolKind kind : {PoolKind::max, PoolKind::avg}) {
    for (const Pool2dGeometry& g :
         {Pool2dGeometry{kind, 2, 2, 2, 2, 0, 0}, {kind, 3, 3, 2, 2, 1, 1}, {kind, 3, 2, 1, 1, 0, 0}}) {
      const Dims in = {3, 5, 9, 8};
      const Dims out = {3, 5, (in[2] + 2 * g.pad_h - g.kernel_h) / g.stride_h + 1,
                        (in[3] + 2 * g.pad_w - g.kernel_w) / g.stride_w + 1};
      for (const Layout layout : {Layout::channels_last, Layout::contiguous}) {
        Arg places{Array(out, DType::u8, layout), layout};
        check({random_arg(in, generator, layout), zeros_arg(out, layout), places,
               random_arg(out, generator, layout), zeros_arg(in, layout)},
              4, "pool2d", [&](Kernels& kernels, const std::vector<View>& v) {
                const View kept = g.kind == PoolKind::max ? v[2] : View{};
                kernels.pool2d(g, v[0], v[1], kept);
                kernels.pool2d_backward(g, v[3], kept, v[4]);
                if (g.kind == PoolKind::max) kernels.pool2d_pick(g, v[0], kept, v[1]);
              });
      }
    }
  }
}

// Only float32 and float64: in bfloat16 the mask of a value near zero may differ.
TEST_F(GpuImages, FusedConvolutionReluPooling) {
  const Case c = {"fused", 3, 4, 13, 13, 6, 5, 5, {}};
  const Dims pooled = {3, 6, 4, 4};
  for (const PoolKind kind : {PoolKind::max, PoolKind::avg}) {
    const Pool2dGeometry pool{kind, 2, 2, 2, 2, 0, 0};
    const std::vector<Arg> args = {random_arg(c.input(), generator, Layout::channels_last),
                                   random_arg(c.weight(), generator),
                                   random_arg({c.o}, generator),
                                   zeros_arg(pooled, Layout::channels_last),
                                   random_arg(pooled, generator, Layout::channels_last),
                                   zeros_arg(c.input(), Layout::channels_last),
                                   zeros_arg(c.weight()),
                                   zeros_arg({c.o})};
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto hidden = [&](Device& device) {
        return device.allocate(static_cast<std::size_t>(pooled.product()));
      };
      const auto cpu = make_device("cpu");
      void* masks[] = {hidden(*cpu), hidden(*gpu)};  // its content is each device's own
      compare(*gpu, dtype, args, bound_of(dtype, 400), "conv2d_relu_pool2d",
              [&](Kernels& kernels, const std::vector<View>& v) {
                const View mask{masks[&kernels == &gpu->kernels() ? 1 : 0], DType::u8, pooled,
                                channels_last_strides(pooled)};
                kernels.conv2d_relu_pool2d(c.geometry, pool, v[0], v[1], v[2], v[3], mask);
                kernels.conv2d_relu_pool2d_backward(c.geometry, pool, v[0], v[1], v[4], mask, v[5], v[6],
                                                    v[7]);
              });
      cpu->deallocate(masks[0], static_cast<std::size_t>(pooled.product()));
      gpu->deallocate(masks[1], static_cast<std::size_t>(pooled.product()));
    }
  }
}

// The first call of a shape tries algorithms, which must not cost what is there.
TEST_F(GpuImages, GradientsOfInputsAddedToWhatIsThere) {
  for (const Case& c : kCases) {
    for (const Layout layout : {Layout::channels_last, Layout::contiguous}) {
      check({random_arg(c.output(), generator, layout), random_arg(c.weight(), generator),
             random_arg(c.input(), generator, layout)},
            c.o * c.kh * c.kw, std::string("conv2d_backward_input_add ") + c.name,
            [&](Kernels& kernels, const std::vector<View>& v) {
              kernels.conv2d_backward_input_add(c.geometry, v[0], v[1], v[2]);
            });
    }
  }
}

/// Values that a variance may have.
Arg positive(Arg arg) {
  auto values = arg.array.values();
  for (double& value : values) value = value * value + 0.5;
  arg.array.set(values);
  return arg;
}

struct NormCase {
  std::int64_t channels;  // 64: several at a time; 70: one at a time
  Layout layout;
  Activation activation;
};
constexpr NormCase kNormCases[] = {{70, Layout::channels_last, Activation::none},
                                   {70, Layout::contiguous, Activation::relu},
                                   {64, Layout::channels_last, Activation::relu},
                                   {64, Layout::contiguous, Activation::none},
                                   {272, Layout::channels_last, Activation::relu}};

BatchNormChannels arrays_of(const std::vector<View>& v) { return {v[2], v[3], v[4], v[5], v[6], v[7]}; }
/// As backward has them where a residual was added: the gate is told by the output.
BatchNormChannels backward_arrays_of(const std::vector<View>& v) {
  return {v[2], {}, v[4], v[5], v[6], v[7]};
}

TEST_F(GpuImages, BatchNormalisation) {
  for (const auto& [extent, layout, activation] : kNormCases) {
    const Dims shape = {5, extent, 6, 7};
    const BatchNormRule rule{.activation = activation};
    const Arg variance = positive(channels(extent));
    std::vector<Arg> args = {random_arg(shape, generator, layout),
                             random_arg(shape, generator, layout),
                             channels(extent),
                             channels(extent),
                             channels(extent),
                             variance,
                             channels(extent),
                             variance,
                             zeros_arg(shape, layout)};
    check(args, 64, "batch_norm", [&, r = rule](Kernels& kernels, const std::vector<View>& v) {
      kernels.batch_norm(r, arrays_of(v), v[0], v[1], v[8]);
    });
    check(args, 64, "batch_norm_inference", [&, r = rule](Kernels& kernels, const std::vector<View>& v) {
      kernels.batch_norm_inference(r, arrays_of(v), v[0], {}, v[8]);
    });
    args.push_back(random_arg(shape, generator, layout));  // 9: gradient of the output
    args.push_back(zeros_arg(shape, layout));              // 10: of the residual
    Arg gradient = zeros_arg({extent});
    gradient.follows = false;
    args.push_back(gradient);  // 11, 12: of weight and bias
    args.push_back(gradient);
    check(args, 210, "batch_norm_backward", [&, r = rule](Kernels& kernels, const std::vector<View>& v) {
      kernels.batch_norm_backward(r, backward_arrays_of(v), v[0], v[1], v[9], v[8], v[10], v[11], v[12]);
    });
    Arg totals = zeros_arg({1, 2 * extent + 1});
    totals.stays = true;
    args.push_back(totals);                    // 13: moments
    args.push_back(totals);                    // 14: sums of gradients
    args.push_back(zeros_arg(shape, layout));  // 15: gradient of the input
    check(args, 210, "batch_norm in steps", [&, r = rule](Kernels& kernels, const std::vector<View>& v) {
      const View gate = r.activation == Activation::relu ? v[1] : View{};
      kernels.batch_norm_moments(v[0], v[13]);
      kernels.batch_norm_combine(r, arrays_of(v), v[13]);
      kernels.batch_norm_apply(r, arrays_of(v), v[0], {}, v[8]);
      kernels.batch_norm_grad_sums(backward_arrays_of(v), v[0], gate, v[9], v[10], v[11], v[12], v[14]);
      kernels.batch_norm_grad_input(backward_arrays_of(v), v[14], v[0], {}, v[10], v[15]);
    });
  }
}

// Where nothing was added forward, backward may tell the gate by the bias; it must be the output's.
TEST_F(GpuImages, BatchNormalisationGatedByItsMap) {
  for (const auto& [extent, layout, activation] : kNormCases) {
    const Dims shape = {5, extent, 6, 7};
    const BatchNormRule rule{.activation = activation};
    Arg per_channel = zeros_arg({extent});
    per_channel.follows = false;
    const std::vector<Arg> args = {random_arg(shape, generator, layout),
                                   zeros_arg(shape, layout),  // output
                                   channels(extent),
                                   channels(extent),
                                   null_arg(),
                                   null_arg(),
                                   per_channel,  // mean
                                   per_channel,  // inv_std
                                   random_arg(shape, generator, layout),
                                   zeros_arg(shape, layout),
                                   per_channel,
                                   per_channel};
    check(args, 210, "batch_norm, gated by its map",
          [&, r = rule](Kernels& kernels, const std::vector<View>& v) {
            kernels.batch_norm(r, arrays_of(v), v[0], {}, v[1]);
            kernels.batch_norm_backward(r, arrays_of(v), v[0], v[1], v[8], v[9], {}, v[10], v[11]);
          });
  }
}

// A first pixel far from all others is not what statistics are taken around.
TEST_F(GpuImages, StatisticsOfChannelsThatBeginFarOff) {
  const Dims shape = {3, 32, 40, 40};
  Arg input = random_arg(shape, generator, Layout::channels_last);
  auto values = input.array.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % (40 * 40) == 0 && i / (40 * 40) < 32) values[i] = 1000;  // of the first image
  }
  input.array.set(values);
  Arg moments = zeros_arg({1, 2 * 32 + 1});
  moments.stays = true;
  compare(*gpu, DType::f32, {input, moments}, 2e-5, "batch_norm_moments",
          [](Kernels& kernels, const std::vector<View>& v) { kernels.batch_norm_moments(v[0], v[1]); });
}

// The same call twice gives the same bits: a resumed run must end with the weights of an undisturbed one.
TEST_F(GpuImages, GradientsOfWeightsAreDeterministic) {
  const Case c = kCases[1];
  const Array input = Array::random(c.input(), generator, DType::f32, Layout::channels_last);
  const Array grad = Array::random(c.output(), generator, DType::f32, Layout::channels_last);
  std::vector<std::vector<double>> results;
  for (int round = 0; round < 3; ++round) {
    compare(*gpu, DType::f32,
            {Arg{input.as(DType::f64, Layout::channels_last), Layout::channels_last},
             Arg{grad.as(DType::f64, Layout::channels_last), Layout::channels_last}, zeros_arg(c.weight())},
            1e-3, "backward", [&](Kernels& kernels, const std::vector<View>& v) {
              kernels.conv2d_backward_weight(c.geometry, v[0], v[1], v[2], {});
              if (&kernels != &gpu->kernels()) return;
              std::vector<float> values(static_cast<std::size_t>(v[2].numel()));
              gpu->copy(values.data(), v[2].data, values.size() * sizeof(float), CopyKind::device_to_host,
                        gpu->compute_stream());
              gpu->compute_stream().synchronize();
              results.emplace_back(values.begin(), values.end());
            });
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace dtrain::test
