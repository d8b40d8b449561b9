// What CUDA_VISIBLE_DEVICES leaves of a machine's GPUs, and what the GPUs say of themselves.
#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <string>

#include "emulation/machine/options.h"

namespace {

using emulation::uuid_text;
using emulation::visible_devices;
using Gpus = std::vector<int>;

TEST(VisibleDevices, AreThoseNamedInTheirOrder) {
  EXPECT_EQ(visible_devices(4, nullptr), (Gpus{0, 1, 2, 3}));
  EXPECT_EQ(visible_devices(4, "2,0"), (Gpus{2, 0}));
  EXPECT_EQ(visible_devices(4, " 1 , 3"), (Gpus{1, 3}));
  EXPECT_EQ(visible_devices(4, ""), Gpus{});
}

TEST(VisibleDevices, EndAtTheFirstThatIsNone) {
  EXPECT_EQ(visible_devices(4, "1,7,2"), Gpus{1});
  EXPECT_EQ(visible_devices(4, "0,-1,2"), Gpus{0});
  EXPECT_EQ(visible_devices(4, "none"), Gpus{});
  EXPECT_EQ(visible_devices(4, "1,1"), Gpus{});
}

TEST(VisibleDevices, CanBeNamedByUuid) {
  EXPECT_EQ(visible_devices(4, (uuid_text(2) + "," + uuid_text(1)).c_str()), (Gpus{2, 1}));
  EXPECT_EQ(visible_devices(1, "GPU-454d55"), Gpus{0});
  EXPECT_EQ(visible_devices(2, "GPU-454d55"), Gpus{});  // either
}

TEST(Devices, SayThatTheyAreEmulated) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 4);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 2), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulated GPU 2");
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 4), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(4), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

}  // namespace
