// A convolution with the batch norm behind it: values against the CPU in float64, and the same bits each
// time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/device/kernel_checks.h"
#include "tests/gpu/on_gpu.h"

namespace dtrain::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

struct Case {
  const char* name;
  std::int64_t n, c, h, w, o, kernel;
  Conv2dGeometry geometry;
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
    {"resnet", 2, 64, 14, 14, 64, 3, {.pad_h = 1, .pad_w = 1}, false, true, kRelu},
    {"with bias", 3, 16, 9, 7, 24, 3, {.pad_h = 1, .pad_w = 1}, true, false, kRelu},
    {"shortcut", 2, 64, 14, 14, 128, 1, {.stride_h = 2, .stride_w = 2}, false, false, kNone},
    {"dilated", 2, 8, 12, 13, 16, 3, {.dilation_h = 2, .dilation_w = 3}, true, true, kNone},
    {"contiguous", 2, 16, 10, 10, 16, 3, {}, false, false, kRelu, Layout::contiguous},
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
     kRelu},
    {"odd", 3, 16, 11, 7, 5, 2, {}, true, true, kRelu},
    {"grouped", 2, 32, 9, 9, 32, 3, {.pad_h = 1, .pad_w = 1, .groups = 4}, true, false, kNone},
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
  kernels.conv2d(c.geometry, v[kInput], v[kWeight], v[kBias], Activation::none, v[kConvolved]);
  kernels.batch_norm({.activation = c.activation}, channels, v[kConvolved], v[kResidual], v[kOutput]);
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
    compare(device, dtype, arguments(c), bound_of(dtype, terms),
            std::string("convolution and batch norm, ") + c.name,
            [&](Kernels& kernels, const std::vector<View>& v) { call(kernels, c, v); });
  }
  std::shared_ptr<Device> gpu = make_device("cuda");
  Generator generator{13};
};

TEST_F(GpuStatistics, AreThoseOfTheCpu) {
  for (const Case& c : kCases) {
    for (const DType dtype : kFloats) check(*gpu, c, dtype);
  }
}

// In TF32, which a user may ask for, the products have 10 bits.
TEST_F(GpuStatistics, OfFloatsInTf32) {
  const auto device = make_device("cuda", {.tf32 = true});
  compare(*device, DType::f32, arguments(kCases[1]), 1e-2, "convolution and batch norm in TF32",
          [&](Kernels& kernels, const std::vector<View>& v) { call(kernels, kCases[1], v); });
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

/// Which arrays differ, and in how many bytes.
std::string differences(const std::vector<std::vector<std::byte>>& one,
                        const std::vector<std::vector<std::byte>>& other) {
  std::string text;
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t count = 0;
    for (std::size_t at = 0; at < one[i].size(); ++at) count += one[i][at] != other[i][at] ? 1 : 0;
    if (count > 0) text += fmt::format("array {}: {} of {} bytes; ", i, count, one[i].size());
  }
  return text;
}

// A resumed run must end with the weights of an undisturbed one: cuDNN's own statistics
// (CUDNN_BACKEND_OPERATION_GEN_STATS), for one, are added up as threads come, whatever it says of its
// engines.
TEST_F(GpuStatistics, AreTheSameBitsEachTimeRecordedOrNot) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const std::string what = fmt::format("{} ({})", c.name, name_of(dtype));
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
      EXPECT_EQ(differences(results(), expected), "") << what;
      const auto graph = gpu->record([&] { call(gpu->kernels(), c, arrays.views()); });
      for (int round = 0; round < 2; ++round) {
        arrays.reset();
        graph->launch(gpu->compute_stream());
        EXPECT_EQ(differences(results(), expected), "") << what << ", recorded";
      }
    }
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

}  // namespace
}  // namespace dtrain::test
