// Kernels that are launched by their address.
#include <map>
#include <mutex>

#include "emulation/cudart/registry.h"

#include "emulation/cudart/enter.h"
#include "emulation/include/emulated_cuda.h"

namespace emulation {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const void*, RegisteredKernel> kernels;
};

// Kernels are registered before main begins, in any order of files.
Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

bool register_kernel(const void* address, const char* name, Binding binding) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels.try_emplace(address, RegisteredKernel{name, std::move(binding)});
  return true;
}

const RegisteredKernel* find_kernel(const void* address) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().kernels.find(address);
  return found == registry().kernels.end() ? nullptr : &found->second;
}

}  // namespace emulation

using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaLaunchKernel(const void* address, dim3 grid, dim3 block, void** arguments,
                                       size_t dynamic_shared_bytes, cudaStream_t stream) {
  const emulation::RegisteredKernel* const kernel = emulation::find_kernel(address);
  if (kernel == nullptr) return note(cudaErrorInvalidDeviceFunction);
  return emulation::launch(kernel->name, grid, block, dynamic_shared_bytes, stream, kernel->bind(arguments));
}

// No registers are counted here: what a small kernel would have.
cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* address) {
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return note(emulation::find_kernel(address) == nullptr ? cudaErrorInvalidDeviceFunction
                                                         : emulation::enter());
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                             int threads, size_t, unsigned) {
  if (threads <= 0) return note(cudaErrorInvalidValue);
  *blocks = threads > 1024 ? 0 : std::min(32, 2048 / ((threads + 31) / 32 * 32));
  return note(emulation::enter());
}
cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                                    int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

}  // extern "C"
