// A convolution with the batch norm behind it: cuDNN's graph interface gathers the statistics while it
// convolves, and what it refuses is done in two. Values against the CPU in float64; which way was taken is
// counted on the emulated machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/batch_peers.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/kernel_checks.h"
#include "runtime/nn/layers.h"
#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

struct Case {
  const char* name;
  std::int64_t n, c, h, w, o, kernel;
  Conv2dGeometry geometry;
  bool is_taken;  ///< by what fuses, in halves
  bool has_bias, has_residual;
  Activation activation;
  Layout layout = Layout::channels_last;  ///< of the input

  Dims input() const { return {n, c, h, w}; }
  Dims weight() const { return {o, c / geometry.groups, kernel, kernel}; }
  Dims output() const {
    const auto extent = [this](auto in, auto stride, auto pad, auto dilation) {
      return window_outputs(in, kernel, stride, pad, dilation);
    };
    return {n, o, extent(h, geometry.stride_h, geometry.pad_h, geometry.dilation_h),
            extent(w, geometry.stride_w, geometry.pad_w, geometry.dilation_w)};
  }
};

constexpr Activation kRelu = Activation::relu, kNone = Activation::none;
const Case kCases[] = {
    {"resnet", 2, 64, 14, 14, 64, 3, {.pad_h = 1, .pad_w = 1}, true, false, true, kRelu},
    {"with bias", 3, 16, 9, 7, 24, 3, {.pad_h = 1, .pad_w = 1}, true, true, false, kRelu},
    {"shortcut", 2, 64, 14, 14, 128, 1, {.stride_h = 2, .stride_w = 2}, true, false, false, kNone},
    {"dilated", 2, 8, 12, 13, 16, 3, {.dilation_h = 2, .dilation_w = 3}, true, true, true, kNone},
    {"contiguous", 2, 16, 10, 10, 16, 3, {}, true, false, false, kRelu, Layout::contiguous},
    {"stem",
     2,
     3,
     32,
     32,
     64,
     7,
     {.stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 3},
     false,
     false,
     false,
     kRelu},
    {"odd", 3, 16, 11, 7, 5, 2, {}, false, true, true, kRelu},
    {"grouped", 2, 32, 9, 9, 32, 3, {.pad_h = 1, .pad_w = 1, .groups = 4}, false, true, false, kNone},
};

/// The arrays of a call, by place.
enum Place : std::size_t {
  kInput,
  kWeight,
  kBias,
  kConvolved,
  kResidual,
  kOutput,
  kNormWeight,
  kNormBias,
  kRunningMean,
  kRunningVar,
  kMean,
  kInvStd,
  kPlaces
};
constexpr Place kWritten[] = {kConvolved, kOutput, kRunningMean, kRunningVar, kMean, kInvStd};

void call(Kernels& kernels, const Case& c, const std::vector<View>& v) {
  const BatchNormChannels channels{v[kNormWeight], v[kNormBias], v[kRunningMean],
                                   v[kRunningVar], v[kMean],     v[kInvStd]};
  kernels.conv2d_batch_norm(c.geometry, v[kInput], v[kWeight], v[kBias], v[kConvolved],
                            {.activation = c.activation}, channels, v[kResidual], v[kOutput]);
}

class GpuStatistics : public testing::Test {
 protected:
  std::vector<Arg> arguments(const Case& c) {
    const auto vector = [&](Arg arg) {
      arg.follows = false;
      return arg;
    };
    const Layout last = Layout::channels_last;
    std::vector<Arg> args = {random_arg(c.input(), generator, c.layout),
                             random_arg(c.weight(), generator),
                             c.has_bias ? vector(random_arg({c.o}, generator)) : null_arg(),
                             zeros_arg(c.output(), last),
                             c.has_residual ? random_arg(c.output(), generator, last) : null_arg(),
                             zeros_arg(c.output(), last)};
    for (std::size_t i = kNormWeight; i < kPlaces; ++i)
      args.push_back(vector(i < kMean ? random_arg({c.o}, generator) : zeros_arg({c.o})));
    return args;
  }
  void check(Device& device, const Case& c, DType dtype) {
    const std::int64_t terms = c.c / c.geometry.groups * c.kernel * c.kernel;
    compare(device, dtype, arguments(c), bound_of(dtype, terms), std::string("conv2d_batch_norm, ") + c.name,
            [&](Kernels& kernels, const std::vector<View>& v) { call(kernels, c, v); });
  }
  /// Names of the kernels and calls that `f` asked for; none on a real GPU, and where a sanitizer watches
  /// memory in the emulated machine's place.
  template <class F>
  std::optional<std::vector<std::string>> asked(Device& device, F&& f) {
    const DeviceWorkPlugin& work = cuda::module_work();
    const bool noted = work.note(true);
    f();
    device.compute_stream().synchronize();
    work.note(false);
    std::vector<std::string> names;
    for (const DeviceWork& one : work.take()) names.push_back(one.name);
    return noted ? std::optional(names) : std::nullopt;
  }

  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{13};
};

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& one) { return one.find(name) != std::string::npos; });
}

TEST_F(GpuStatistics, AreThoseOfTheCpu) {
  for (const Case& c : kCases) {
    for (const DType dtype : kFloats) check(*gpu, c, dtype);
  }
}

TEST_F(GpuStatistics, AreGatheredByTheConvolutionWhereCudnnDoesThat) {
  for (const Case& c : kCases) {
    for (const DType dtype : kFloats) {
      const auto names = asked(*gpu, [&] { check(*gpu, c, dtype); });
      if (!names)
        GTEST_SKIP() << "skipped: neither a real GPU nor a sanitizer's build says what ran; nsys does";
      EXPECT_EQ(has(*names, "cudnnBackendExecute"), c.is_taken && is_half(dtype))
          << c.name << ", " << name_of(dtype);
      EXPECT_EQ(has(*names, "sums_kernel"), !c.is_taken || !is_half(dtype))
          << c.name << ", " << name_of(dtype);
    }
  }
}

// In TF32, which a user may ask for, floats are fused too; then the products have 10 bits.
TEST_F(GpuStatistics, OfFloatsInTf32) {
  const auto device = make_device("cuda", {.tf32 = true});
  const Case& c = kCases[1];
  const auto names = asked(*device, [&] {
    compare(*device, DType::f32, arguments(c), 1e-2, "conv2d_batch_norm in TF32",
            [&](Kernels& kernels, const std::vector<View>& v) { call(kernels, c, v); });
  });
  EXPECT_EQ(names && has(*names, "cudnnBackendExecute"), names.has_value());
}

/// cuDNN's answer as the emulated machine is told to give it, for devices that are made meanwhile.
class Refusing {
 public:
  explicit Refusing(const char* what) { setenv("DTRAIN_EMULATED_CUDNN_REFUSES", what, 1); }
  ~Refusing() { unsetenv("DTRAIN_EMULATED_CUDNN_REFUSES"); }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
};

TEST_F(GpuStatistics, AreReadFromTheOutputWhereCudnnRefuses) {
  if (!gpu->is_emulated()) GTEST_SKIP() << "skipped: a real cuDNN cannot be told to refuse";
  std::vector<std::string> said;
  const cuda::ModuleNotices notices([&](const std::string& text) { said.push_back(text); });
  const Refusing refusing("statistics:bf16");
  const auto device = make_device("cuda");
  Case c = kCases[1];
  c.n = 4;  // a shape that no test before has: a refusal is said once in a process
  for (int round = 0; round < 2; ++round) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const auto names = asked(*device, [&] { check(*device, c, dtype); });
      if (!names) continue;
      EXPECT_EQ(has(*names, "cudnnBackendExecute"), dtype == DType::f16) << name_of(dtype);
      EXPECT_EQ(has(*names, "cudnnConvolution"), dtype == DType::bf16) << name_of(dtype);
    }
  }
  const std::string expected =
      "cuDNN does not gather batch norm's statistics in conv2d forward, bfloat16, input [4, 16, 9, 7], "
      "weight "
      "[24, 16, 3, 3] (it names no engine): batch norm reads the output once more";
  EXPECT_EQ(std::count(said.begin(), said.end(), expected), 1) << (said.empty() ? "nothing" : said.back());
  EXPECT_FALSE(has(said, " float16, input [4, 16")) << said.back();
}

/// The call's arrays on the GPU, and what they hold.
class OnGpu {
 public:
  OnGpu(Device& device, const std::vector<Arg>& args, DType dtype) : device_(device) {
    for (const Arg& arg : args) {
      arrays_.push_back(arg.array.as(arg.follows ? dtype : DType::f32, arg.layout));
      views_.push_back(arg.is_null ? View{} : arrays_.back().view());
      if (arg.is_null) continue;
      views_.back().data = device.allocate(bytes(views_.back()));
    }
    reset();
  }
  ~OnGpu() {
    for (const View& view : views_) {
      if (view.data != nullptr) device_.deallocate(view.data, bytes(view));
    }
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  /// Everything as it was.
  void reset() {
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (views_[i].data == nullptr) continue;
      device_.copy(views_[i].data, arrays_[i].view().data, bytes(views_[i]), CopyKind::host_to_device,
                   device_.compute_stream());
    }
    device_.compute_stream().synchronize();
  }
  std::vector<std::byte> read(std::size_t i) const {
    std::vector<std::byte> result(bytes(views_[i]));
    device_.copy(result.data(), views_[i].data, result.size(), CopyKind::device_to_host,
                 device_.compute_stream());
    device_.compute_stream().synchronize();
    return result;
  }
  const std::vector<View>& views() const { return views_; }

 private:
  static std::size_t bytes(const View& view) {
    return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
  }
  Device& device_;
  std::vector<Array> arrays_;
  std::vector<View> views_;
};

// A resumed run must end with the weights of an undisturbed one, and cuDNN's first proposal adds up as
// threads come. The plan is made before the recording, its workspace is the graph's own.
TEST_F(GpuStatistics, AreTheSameBitsEachTimeRecordedOrNot) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Case& c = kCases[0];
    OnGpu arrays(*gpu, arguments(c), dtype);
    const auto results = [&] {
      std::vector<std::vector<std::byte>> all;
      for (const std::size_t i : kWritten) all.push_back(arrays.read(i));
      return all;
    };
    call(gpu->kernels(), c, arrays.views());
    const auto expected = results();
    arrays.reset();
    call(gpu->kernels(), c, arrays.views());
    EXPECT_EQ(results(), expected) << name_of(dtype);
    const auto graph = gpu->record([&] { call(gpu->kernels(), c, arrays.views()); });
    for (int round = 0; round < 2; ++round) {
      arrays.reset();
      graph->launch(gpu->compute_stream());
      EXPECT_EQ(results(), expected) << name_of(dtype) << ", recorded";
    }
  }
}

// What autotune off forbids is trying out: a host that waits for the GPU.
TEST_F(GpuStatistics, AreNeverTriedOut) {
  if (!gpu->is_emulated()) GTEST_SKIP() << "skipped: a real GPU does not count waits; nsys does";
  for (const bool autotune : {false, true}) {
    const auto device = make_device("cuda", {.autotune = autotune});
    OnGpu arrays(*device, arguments(kCases[0]), DType::bf16);
    const auto waits = [] { return cuda::module_work().counts().at("host_waits"); };
    const auto before = waits();
    call(device->kernels(), kCases[0], arrays.views());
    EXPECT_EQ(waits(), before) << "autotune " << autotune;
  }
}

// Infinities are not hidden: loss scaling looks for them.
TEST_F(GpuStatistics, OfWhatIsNotFiniteAreNotFinite) {
  std::vector<Arg> args = arguments(kCases[0]);
  auto values = args[kInput].array.values();
  values[0] = std::numeric_limits<double>::infinity();
  args[kInput].array.set(values);
  OnGpu arrays(*gpu, args, DType::f16);
  call(gpu->kernels(), kCases[0], arrays.views());
  const auto mean = arrays.read(kMean), inv_std = arrays.read(kInvStd);
  for (const auto* const bytes : {&mean, &inv_std}) {
    float first = 0;
    std::memcpy(&first, bytes->data(), sizeof first);
    EXPECT_FALSE(std::isfinite(first));
  }
}

/// A batch that is all here, as its peers' exchange has it.
class NoOtherPeer final : public BatchPeers {
 public:
  int size() const noexcept override { return 1; }
  void all_gather(const Tensor& mine, const Tensor& all) override {
    all.detach().copy_from(mine.reshape(all.shape()));
  }
  void add_up(const Tensor&) override {}
};

// Where statistics are not those of the convolution's output, or not of this batch, nothing gathers them.
TEST_F(GpuStatistics, AreGatheredInTrainingOfAPlainConvolutionWithItsBatchHere) {
  LowPrecisionWeights weights;
  const Autocast autocast(Precision::bf16, weights);
  Generator draws{5};
  Conv2dOptions active;
  active.activation = Activation::relu;
  Conv2d plain(8, 16, 3, draws, gpu), gated(8, 16, 3, draws, gpu, active), again(8, 16, 3, draws, gpu);
  again.set_recompute();
  BatchNorm2d norm(16, gpu), frozen(16, gpu), among_peers(16, gpu);
  frozen.eval();
  among_peers.synchronize(std::make_shared<NoOtherPeer>());
  const Tensor x = Tensor::rand({2, 8, 9, 9}, draws, gpu, -1.0F, 1.0F);
  bool is_told = false;
  const auto gathers = [&](BatchNorm2d& of, Conv2d& behind) {
    const auto names = asked(*gpu, [&] { of.after(behind, x, Activation::relu); });
    is_told = names.has_value();
    return is_told && has(*names, "cudnnBackendExecute");
  };
  const bool plain_gathers = gathers(norm, plain);
  EXPECT_EQ(plain_gathers, is_told);
  EXPECT_FALSE(gathers(norm, gated));
  EXPECT_FALSE(gathers(norm, again));
  EXPECT_FALSE(gathers(frozen, plain));
  EXPECT_FALSE(gathers(among_peers, plain));
  EXPECT_EQ(norm.named_buffers().back().second.to_vector<std::int64_t>()[0],
            3);  // batches, each counted once
}

}  // namespace
}  // namespace dtrain::test
