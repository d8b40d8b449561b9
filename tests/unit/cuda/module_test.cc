// How a program finds the CUDA module, and what it says where there is none, no driver or no GPU. Holds on
// machines with and without a GPU.
#include "runtime/device/cuda/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"

namespace dtrain::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::string& device) {
  try {
    make_device(device);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

class CudaModule : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("DTRAIN_CUDA_MODULE"); }
};

TEST_F(CudaModule, MissingFileIsNamedWithTheWayToGetIt) {
  ::setenv("DTRAIN_CUDA_MODULE", "/nowhere/libdtrain_cuda.so", 1);
  EXPECT_THAT(refusal_of("cuda"),
              AllOf(HasSubstr("/nowhere/libdtrain_cuda.so"), HasSubstr("cannot be loaded"),
                    HasSubstr("-DDTRAIN_WITH_CUDA=ON"), HasSubstr("use device cpu")));
  EXPECT_THAT(refusal_of("cuda:3"), HasSubstr("cannot be loaded"));
}

TEST_F(CudaModule, AutoIsTheCpuWithoutModule) {
  ::setenv("DTRAIN_CUDA_MODULE", "/nowhere/libdtrain_cuda.so", 1);
  EXPECT_EQ(device_count(), 0);
  EXPECT_EQ(make_device("auto")->type(), DeviceType::cpu);
}

TEST_F(CudaModule, ForeignLibraryIsRefused) {
  ::setenv("DTRAIN_CUDA_MODULE", "libm.so.6", 1);
  EXPECT_THAT(refusal_of("cuda"), HasSubstr("has no part 'dtrain_cuda_module'"));
}

#ifdef DTRAIN_BUILT_CUDA_MODULE
TEST_F(CudaModule, IsFoundBesideThePrograms) {
  const auto* part = reinterpret_cast<DevicePluginFunction>(module_symbol("dtrain_cuda_device"))();
  const ModuleReport report = part->report();
  EXPECT_THAT(report.summary, AllOf(HasSubstr("runtime "), HasSubstr("cuBLASLt ")));
  EXPECT_EQ(report.devices == 0, !report.problem.empty()) << report.problem;
}

// Beside the driver, all of it is told without a GPU.
TEST_F(CudaModule, TellsItsVersionsAsBuiltAndAsLoaded) {
  const ModuleDetails details = module_details();
  EXPECT_GE(details.runtime, (Version{12, 2, 0}));
  EXPECT_THAT(details.architectures, HasSubstr("0"));
  ASSERT_FALSE(details.libraries.empty());
  EXPECT_EQ(details.libraries[0].name, "cuBLASLt");
  for (const LibraryVersion& library : details.libraries) {
    EXPECT_TRUE(library.built.known()) << library.name;
    EXPECT_EQ(library.built.major, library.loaded.major) << library.name;
    EXPECT_THAT(library.file, HasSubstr("lib")) << library.name;
  }
  EXPECT_EQ(details.gpus.size(), static_cast<std::size_t>(device_count()));
}

TEST_F(CudaModule, ProfilerRangesMayBeUsedWithoutAProfiler) {
  SpanRecorder spans;
  spans.set_listener(&module_profiler());
  {
    const SpanScope outer(&spans, "step 1", "step");
    const std::string long_name(1000, 'x');
    const SpanScope inner(&spans, long_name, "phase");
  }
  EXPECT_EQ(spans.take().size(), 2U);
}

TEST_F(CudaModule, SaysWhatTheMachineLacks) {
  ::setenv("DTRAIN_CUDA_MODULE", DTRAIN_BUILT_CUDA_MODULE, 1);
  if (device_count() > 0) {
    EXPECT_EQ(make_device("cuda")->type(), DeviceType::cuda);
    EXPECT_THAT(refusal_of("cuda:63"), HasSubstr("expected an index below"));
    return;
  }
  EXPECT_THAT(refusal_of("cuda"), AllOf(HasSubstr("device cuda: "), HasSubstr("driver"),
                                        HasSubstr("runtime 1"), HasSubstr("use device cpu")));
  EXPECT_EQ(make_device("auto")->type(), DeviceType::cpu);
}

// Errors thrown inside the module are the program's own types.
TEST_F(CudaModule, ItsErrorsCanBeCaught) {
  const auto* part = reinterpret_cast<DevicePluginFunction>(module_symbol("dtrain_cuda_device"))();
  try {
    part->make(1000, {});
    FAIL() << "no GPU has index 1000";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("choose GPU 1000"));
    EXPECT_NE(error.code(), 0);
    EXPECT_EQ(error.exit_code(), ExitCode::device);
  }
}

TEST_F(CudaModule, UnknownPartIsNamed) { EXPECT_THROW(module_symbol("dtrain_no_such_part"), UsageError); }
#endif

}  // namespace
}  // namespace dtrain::cuda
