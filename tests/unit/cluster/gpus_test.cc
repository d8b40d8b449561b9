// Counting GPUs from files and CUDA_VISIBLE_DEVICES.
#include "cluster/detect/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Gpus, CountsTheDriversFolderElseDeviceNodes) {
  const test::TempDir root;
  EXPECT_EQ(installed_gpus(root.path()), 0);
  std::filesystem::create_directories(root / "dev");
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "null"}) {
    test::write_file(root / "dev" / name, "");
  }
  EXPECT_EQ(installed_gpus(root.path()), 3);
  std::filesystem::create_directories(root / "proc/driver/nvidia/gpus/0000:17:00.0");
  std::filesystem::create_directories(root / "proc/driver/nvidia/gpus/0000:31:00.0");
  EXPECT_EQ(installed_gpus(root.path()), 2);
  std::filesystem::create_directories(root / "sys/bus/pci/devices/0000:31:00.0");
  test::write_file(root / "sys/bus/pci/devices/0000:31:00.0/numa_node", "1\n");
  EXPECT_EQ(numa_node_of_gpu(1, root.path()), 1);
  EXPECT_FALSE(numa_node_of_gpu(0, root.path()));
  EXPECT_FALSE(numa_node_of_gpu(2, root.path()));
}

TEST(Gpus, IntelsAreRenderNodesOfThatVendor) {
  const test::TempDir root;
  EXPECT_EQ(installed_xpus(root.path()), 0);
  for (const auto& [name, vendor] : std::map<std::string, std::string>{{"renderD128", "0x8086"},
                                                                       {"renderD129", "0x10de"},
                                                                       {"renderD130", "0x8086"},
                                                                       {"card0", "0x8086"}}) {
    std::filesystem::create_directories(root / "sys/class/drm" / name / "device");
    test::write_file(root / "sys/class/drm" / name / "device/vendor", vendor + "\n");
  }
  EXPECT_EQ(installed_xpus(root.path()), 2);
  EXPECT_EQ(visible_xpus(std::nullopt, 2), 2);
  EXPECT_EQ(visible_xpus("1", 2), 1);
  EXPECT_EQ(visible_xpus("0.0, 0.1,1.0", 2), 3);
  EXPECT_EQ(visible_xpus("", 2), 0);
  EXPECT_EQ(visible_xpus("0,1", 0), 0);
}

TEST(Gpus, VisibleDevicesFollowCudasRules) {
  EXPECT_THAT(visible_gpus(std::nullopt, 2), ElementsAre("0", "1"));
  EXPECT_THAT(visible_gpus("", 2), IsEmpty());
  EXPECT_THAT(visible_gpus("-1", 2), IsEmpty());
  EXPECT_THAT(visible_gpus("NoDevFiles", 2), IsEmpty());
  EXPECT_THAT(visible_gpus("1,0", 2), ElementsAre("1", "0"));
  EXPECT_THAT(visible_gpus(" 1 , 0", 2), ElementsAre("1", "0"));
  EXPECT_THAT(visible_gpus("0,7,1", 2), ElementsAre("0")) << "the list ends at the first that is not there";
  EXPECT_THAT(visible_gpus("0,-1,1", 2), ElementsAre("0"));
  EXPECT_THAT(visible_gpus("GPU-abc,MIG-def", 2), ElementsAre("GPU-abc", "MIG-def"));
  EXPECT_THAT(visible_gpus("0,1,2", 0), ElementsAre("0", "1", "2"))
      << "believed where the driver's files are hidden";
}

}  // namespace
}  // namespace dtrain
