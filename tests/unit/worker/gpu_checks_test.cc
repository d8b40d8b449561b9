// What `dtrain doctor` makes of drivers, libraries and GPUs, from made-up machines.
#include "worker/gpu_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void make_file(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::create_directories(path.parent_path());
  test::write_file(path, content);
}

TEST(DriverVersion, IsFoundInBothKernelModulesTexts) {
  EXPECT_EQ(parse_driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
                                 "GCC version:  gcc version 12.2.0\n"),
            "535.104.05");
  EXPECT_EQ(parse_driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  "
                                 "Release Build  (root@host)\n"),
            "580.65.06");
  EXPECT_EQ(parse_driver_version(""), "");
  EXPECT_EQ(parse_driver_version("NVRM version: none\nGCC version: 12.2.0\n"), "");
}

TEST(ReadDriver, SeesDriverGpusAndSlots) {
  const test::TempDir root;
  make_file(root / "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  x\n");
  make_file(root / "proc/driver/nvidia/gpus/0000:0f:00.0/information",
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 255\n");
  for (const char* slot : {"0000:0f:00.0", "0000:10:00.0"}) {
    make_file(root.path() / "sys/bus/pci/devices" / slot / "vendor", "0x10de\n");
    make_file(root.path() / "sys/bus/pci/devices" / slot / "class", "0x030200\n");
  }
  make_file(root / "sys/bus/pci/devices/0000:00:01.0/vendor", "0x10de\n");  // its audio function
  make_file(root / "sys/bus/pci/devices/0000:00:01.0/class", "0x040300\n");
  make_file(root / "dev/nvidiactl", "");
  const NvidiaDriver driver = read_nvidia_driver(root.path().string());
  EXPECT_EQ(driver.version, "580.65.06");
  EXPECT_THAT(driver.gpus, ElementsAre("NVIDIA H100 80GB HBM3"));
  EXPECT_EQ(driver.in_slots, 2);
  EXPECT_TRUE(driver.reachable);
}

TEST(ReadDriver, FindsNothingWhereThereIsNothing) {
  const test::TempDir root;
  const NvidiaDriver driver = read_nvidia_driver(root.path().string());
  EXPECT_EQ(driver.version, "");
  EXPECT_TRUE(driver.gpus.empty());
  EXPECT_EQ(driver.in_slots, 0);
  EXPECT_FALSE(driver.reachable);
}

TEST(JudgeDriver, AMachineWithoutGpuIsWell) {
  const Finding finding = judge_driver({});
  EXPECT_EQ(finding.verdict, Verdict::note);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("CPU")));
}

TEST(JudgeDriver, NamesWhatKeepsAGpuFromUse) {
  NvidiaDriver driver;
  driver.in_slots = 2;
  Finding finding = judge_driver(driver);
  EXPECT_EQ(finding.verdict, Verdict::bad);
  EXPECT_THAT(finding.text, HasSubstr("2 NVIDIA GPUs are in the PCI slots, but no driver"));
  EXPECT_THAT(finding.fix, HasSubstr("modprobe nvidia"));

  driver.version = "580.65.06";
  finding = judge_driver(driver);
  EXPECT_EQ(finding.verdict, Verdict::bad);
  EXPECT_THAT(finding.text, HasSubstr("/dev/nvidiactl"));
  EXPECT_THAT(finding.fix, HasSubstr("--gpus all"));

  driver.reachable = true;
  driver.gpus = {"A", "B"};
  finding = judge_driver(driver);
  EXPECT_EQ(finding.verdict, Verdict::good);
  EXPECT_EQ(finding.text, "580.65.06: A, B");
}

TEST(JudgeDriverLibrary, MustRunTheRuntimesMajorVersion) {
  const NvidiaDriver driver{"535.104.05", {"A"}, 1, true};
  const Finding older = judge_driver_library({12, 2}, {13, 0}, driver);
  EXPECT_EQ(older.verdict, Verdict::bad);
  EXPECT_THAT(older.text, AllOf(HasSubstr("up to 12.2"), HasSubstr("built with 13.0")));
  EXPECT_THAT(older.fix, AllOf(HasSubstr("580 or later"), HasSubstr("CUDA 12")));
  EXPECT_EQ(judge_driver_library({12, 2}, {12, 6}, driver).verdict, Verdict::good);
  EXPECT_EQ(judge_driver_library({13, 1}, {12, 6}, driver).verdict, Verdict::good);
}

TEST(JudgeDriverLibrary, IsOnlyMissedWhereThereIsADriver) {
  EXPECT_EQ(judge_driver_library({}, {13, 0}, {}).verdict, Verdict::note);
  const Finding missed = judge_driver_library({}, {13, 0}, {"580.65.06", {"A"}, 1, true});
  EXPECT_EQ(missed.verdict, Verdict::bad);
  EXPECT_THAT(missed.fix, HasSubstr("NVIDIA_DRIVER_CAPABILITIES"));
}

TEST(JudgeLibrary, OlderOrOfAnotherMajorIsBad) {
  const auto judged = [](Version loaded) {
    return judge_library({"cuDNN", {9, 13, 0}, loaded, "/lib/libcudnn.so.9"});
  };
  EXPECT_EQ(judged({9, 13, 0}).verdict, Verdict::good);
  EXPECT_EQ(judged({9, 14, 1}).verdict, Verdict::good);
  for (const Version bad : {Version{9, 12, 5}, Version{8, 9, 7}, Version{10, 0, 0}, Version{}})
    EXPECT_EQ(judged(bad).verdict, Verdict::bad) << bad.text();
  const Finding older = judged({9, 12, 5});
  EXPECT_THAT(older.text, AllOf(HasSubstr("9.12.5 was loaded"), HasSubstr("built with 9.13"),
                                HasSubstr("/lib/libcudnn.so.9")));
  EXPECT_THAT(older.fix, HasSubstr("LD_LIBRARY_PATH"));
}

TEST(HasCode, MachineCodeStaysInItsMajorAndPtxGoesUp) {
  constexpr std::string_view kRelease = "80-real,90-real,90-virtual";
  EXPECT_FALSE(has_code_for(kRelease, {7, 5}));
  EXPECT_TRUE(has_code_for(kRelease, {8, 0}));
  EXPECT_TRUE(has_code_for(kRelease, {8, 9}));
  EXPECT_TRUE(has_code_for(kRelease, {9, 0}));
  EXPECT_TRUE(has_code_for(kRelease, {12, 0}));
  EXPECT_FALSE(has_code_for("90-real", {10, 0}));
  EXPECT_FALSE(has_code_for("89-real", {8, 6}));
  EXPECT_TRUE(has_code_for("80", {9, 0}));
  EXPECT_FALSE(has_code_for("", {9, 0}));
}

TEST(JudgeGpu, WithoutCodeSaysHowToBuildIt) {
  const Finding finding = judge_gpu(1, "Tesla T4", {7, 5}, 15.0, "80-real,90-real");
  EXPECT_EQ(finding.subject, "gpu 1");
  EXPECT_EQ(finding.verdict, Verdict::bad);
  EXPECT_THAT(finding.fix, HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=75"));
  EXPECT_EQ(judge_gpu(0, "H100", {9, 0}, 80.0, "90-real").verdict, Verdict::good);
}

}  // namespace
}  // namespace dtrain
