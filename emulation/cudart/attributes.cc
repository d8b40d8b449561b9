// What cudaDeviceGetAttribute answers: a GPU's properties one at a time, and some that are no longer among
// them.
#include <array>

#include "emulation/cudart/enter.h"

using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t result = cudaGetDeviceProperties(&properties, device);
  if (result != cudaSuccess) return result;
  const std::array<std::pair<cudaDeviceAttr, int>, 26> answers{{
      {cudaDevAttrMultiProcessorCount, properties.multiProcessorCount},
      {cudaDevAttrMaxThreadsPerBlock, properties.maxThreadsPerBlock},
      {cudaDevAttrMaxThreadsPerMultiProcessor, properties.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlockDimX, properties.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, properties.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, properties.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, properties.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, properties.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, properties.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(properties.sharedMemPerBlock)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(properties.sharedMemPerBlock)},
      {cudaDevAttrMaxRegistersPerBlock, properties.regsPerBlock},
      {cudaDevAttrWarpSize, properties.warpSize},
      {cudaDevAttrComputeCapabilityMajor, properties.major},
      {cudaDevAttrComputeCapabilityMinor, properties.minor},
      {cudaDevAttrMemoryPoolsSupported, properties.memoryPoolsSupported},
      {cudaDevAttrUnifiedAddressing, properties.unifiedAddressing},
      {cudaDevAttrCanMapHostMemory, properties.canMapHostMemory},
      {cudaDevAttrConcurrentKernels, properties.concurrentKernels},
      {cudaDevAttrManagedMemory, 1},
      {cudaDevAttrConcurrentManagedAccess, 1},
      {cudaDevAttrComputeMode, cudaComputeModeDefault},
      {cudaDevAttrCooperativeLaunch, 0},  // blocks run one after the other
      {cudaDevAttrClockRate, 1'000'000},  // kHz; what clock() counts in
      {cudaDevAttrAsyncEngineCount, 2},
      {cudaDevAttrGpuOverlap, 1},
  }};
  for (const auto& [known, answer] : answers) {
    if (known != attribute) continue;
    *value = answer;
    return cudaSuccess;
  }
  return note(cudaErrorNotSupported);
}

}  // extern "C"
