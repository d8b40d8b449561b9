// Where NVIDIA's libraries are looked for, and what is said where they are missing.
#include "runtime/device/cuda/loading/libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/device/cuda/module.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace dtrain::cuda {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CudaLibraries : public testing::Test {
 protected:
  fs::path make(const std::string& folder) {
    fs::create_directories(dir_ / folder);
    return dir_ / folder;
  }
  test::TempDir dir_;
};

TEST_F(CudaLibraries, WheelsOfTheProgramsEnvironmentComeFirst) {
  const fs::path old = make("env/lib/python3.9/site-packages/nvidia/cudnn/lib");
  const fs::path own = make("env/lib/python3.11/site-packages/nvidia/cu13/lib");
  make("env/lib/python3.11/site-packages/nvidia/cudnn/include");  // a wheel without libraries
  make("env/lib/dtrain");
  const fs::path other = make("other/lib/python3.12/site-packages/nvidia/nccl/lib");
  const fs::path system = make("usr/local/lib/python3.11/dist-packages/nvidia/cudnn/lib");
  const fs::path toolkit = make("toolkit/lib64");
  const fs::path usual = make("usr/local/cuda/lib");
  EXPECT_THAT(library_folders(dir_ / "env/bin",
                              {{"VIRTUAL_ENV", (dir_ / "other").string()},
                               {"CONDA_PREFIX", ""},
                               {"CUDA_PATH", (dir_ / "toolkit").string()}},
                              dir_.path()),
              ElementsAre(own, old, other, system, toolkit, usual));
}

TEST_F(CudaLibraries, AreNowhereWhereNothingIsInstalled) {
  EXPECT_THAT(library_folders(dir_ / "bin", {{"VIRTUAL_ENV", "/nowhere"}}, dir_.path()), testing::IsEmpty());
}

TEST_F(CudaLibraries, PackagesAreNamedForTheModulesRelease) {
  const std::vector<std::string> all = {"libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2", "libc.so.6"};
  EXPECT_THAT(
      how_to_get_libraries({"libcudnn.so.9"}, all),
      AllOf(HasSubstr("\"pip install nvidia-cudnn-cu13\""), HasSubstr("\"apt install libcudnn9-cuda-13\""),
            Not(HasSubstr("cublas")), HasSubstr("or use device cpu")));
  EXPECT_THAT(how_to_get_libraries({"libcublasLt.so.13", "libnccl.so.2"}, all),
              AllOf(HasSubstr("\"pip install nvidia-cublas nvidia-nccl-cu13\""),
                    HasSubstr("\"apt install libcublas-13-0 libnccl2\"")));
  EXPECT_THAT(how_to_get_libraries({"libcublasLt.so.12"}, {"libcublasLt.so.12"}),
              HasSubstr("pip install nvidia-cublas-cu12\""));
  EXPECT_THAT(how_to_get_libraries({"libfmt.so.9"}, all),
              AllOf(HasSubstr("install the package that has libfmt.so.9"), Not(HasSubstr("pip"))));
}

// A module whose library the dynamic linker does not find.
TEST_F(CudaLibraries, AreLoadedFromThereForTheModule) {
  ::setenv("DTRAIN_CUDA_MODULE", DTRAIN_MODULE_WITHOUT_ITS_LIBRARY, 1);
  const auto refusal = [] { return test::message_of([] { module_symbol("dtrain_cuda_device"); }); };
  EXPECT_THAT(
      refusal(),
      AllOf(HasSubstr("the CUDA module cannot be loaded (it needs libdtrain_not_there.so: not found)"),
            HasSubstr("install the package that has libdtrain_not_there.so")));
  const fs::path folder = make("env/lib/python3.11/site-packages/nvidia/cu13/lib");
  ::setenv("VIRTUAL_ENV", (dir_ / "env").c_str(), 1);
  std::ofstream(folder / "libdtrain_not_there.so") << "no library";
  EXPECT_THAT(refusal(), HasSubstr("libdtrain_not_there.so: " + (folder / "libdtrain_not_there.so").string() +
                                   ": file too short"));
  fs::copy_file(DTRAIN_LIBRARY_NOT_THERE, folder / "libdtrain_not_there.so",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(), HasSubstr("has no part 'dtrain_cuda_module'"));  // it is open
  ::unsetenv("VIRTUAL_ENV");
  ::unsetenv("DTRAIN_CUDA_MODULE");
}

}  // namespace
}  // namespace dtrain::cuda
