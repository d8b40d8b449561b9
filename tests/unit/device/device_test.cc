// Devices by name, their memory, and small hand-computed kernels.
#include "runtime/device/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

View view_of(std::vector<float>& data, const Dims& shape) {
  return {data.data(), DType::f32, shape, contiguous_strides(shape)};
}

TEST(MakeDevice, KnowsItsNames) {
  EXPECT_EQ(make_device("cpu")->type(), DeviceType::cpu);
  EXPECT_NO_THROW(make_device("auto"));
  EXPECT_THROW(make_device("gpu"), UsageError);
  EXPECT_THROW(make_device("cuda:x"), UsageError);
  EXPECT_THROW(make_device("cuda:-1"), UsageError);
  EXPECT_THROW(make_device(""), UsageError);
}

// Whatever this processor has.
TEST(CpuDevice, NamesWhatTheLibraryComputesWith) {
  EXPECT_EQ(make_device("cpu")->name().find(", isa "), std::string::npos) << make_device("cpu")->name();
}

TEST(CpuDevice, CountsAlignedMemory) {
  const auto device = make_device("cpu");
  void* small = device->allocate(10);
  void* big = device->allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(big) % 64, 0u);
  EXPECT_EQ(device->allocated_bytes(), 1010u);
  device->deallocate(big, 1000);
  EXPECT_EQ(device->allocated_bytes(), 10u);
  EXPECT_EQ(device->peak_allocated_bytes(), 1010u);
  device->deallocate(small, 10);
  EXPECT_THROW(device->allocate(std::size_t{1} << 60), DeviceError);
}

TEST(CpuKernels, MultiplyAndConvolveByHand) {
  const auto device = make_device("cpu");
  std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, bias = {-100, 1}, out(4);
  const View none{};
  device->kernels().matmul(view_of(a, {1, 2, 2}), view_of(b, {1, 2, 2}), view_of(bias, {2}), Activation::relu,
                           false, view_of(out, {1, 2, 2}));
  EXPECT_EQ(out, (std::vector<float>{0, 23, 0, 51}));
  std::vector<float> image = {1, 2, 3, 4, 5, 6, 7, 8, 9}, weight = {1, 0, 0, -1};
  device->kernels().conv2d({}, view_of(image, {1, 1, 3, 3}), view_of(weight, {1, 1, 2, 2}), none,
                           Activation::none, view_of(out, {1, 1, 2, 2}));
  EXPECT_EQ(out, (std::vector<float>{-4, -4, -4, -4}));
}

}  // namespace
}  // namespace dtrain
