#include "runtime/device/cuda/details.h"

#include <dlfcn.h>

#include "runtime/device/cuda/check.h"

namespace dtrain::cuda {
namespace {

// CUDA's and cuBLAS', cuDNN's encodings of a version in one number.
Version cuda_version(int number) { return {number / 1000, number % 1000 / 10, 0}; }
Version library_version(std::size_t number) {
  const int n = static_cast<int>(number);
  return {n / 10000, n % 10000 / 100, n % 100};
}

// The file that holds `function`.
template <class Function>
std::string file_of(Function* function) {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(function), &info) != 0;
  return found && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::vector<LibraryVersion> libraries() {
  std::vector<LibraryVersion> found;
  found.push_back({"cuBLASLt",
                   {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH},
                   library_version(cublasLtGetVersion()),
                   file_of(&cublasLtGetVersion)});
#if DTRAIN_HAVE_CUDNN
  found.push_back({"cuDNN",
                   {CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL},
                   library_version(cudnnGetVersion()),
                   file_of(&cudnnGetVersion)});
#endif
  return found;
}

std::vector<GpuReport> gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  std::vector<GpuReport> found;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    found.push_back(
        {index, properties.name, {properties.major, properties.minor, 0}, properties.totalGlobalMem});
  }
  return found;
}

}  // namespace

ModuleDetails find_details() {
  ModuleDetails details;
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));  // 0 without a driver
  details.driver = cuda_version(driver);
  details.runtime = cuda_version(CUDART_VERSION);
  details.libraries = libraries();
  details.architectures = DTRAIN_CUDA_ARCHITECTURES;
  details.gpus = gpus();
  return details;
}

}  // namespace dtrain::cuda
