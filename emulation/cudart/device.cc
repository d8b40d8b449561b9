// GPUs as the CUDA runtime shows them.
#include <cstdio>

#include "emulation/cudart/enter.h"

using emulation::Machine;
using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = Machine::get().device_count();
  return note(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  const int count = Machine::get().device_count();
  if (count == 0) return note(cudaErrorNoDevice);
  if (device < 0 || device >= count) return note(cudaErrorInvalidDevice);
  emulation::current_device() = device;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  *device = emulation::current_device();
  return note(Machine::get().device_count() == 0 ? cudaErrorNoDevice : cudaSuccess);
}

// What a Hopper GPU answers, but for the size.
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Machine& machine = Machine::get();
  if (device < 0 || device >= machine.device_count()) return note(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  const int gpu = machine.options().visible[static_cast<std::size_t>(device)];
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU %d", gpu);
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = machine.options().multiprocessors;
  properties->totalGlobalMem = machine.memory().total();
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->sharedMemPerBlock = 48 << 10;
  properties->regsPerBlock = 65536;
  properties->pciBusID = gpu + 1;
  properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
  properties->memoryPoolsSupported = 1;
  std::snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "EMU%d", gpu);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  auto lock = machine.lock();
  if (const cudaError_t error = emulation::forbid_while_capturing(machine); error != cudaSuccess)
    return note(error);
  return note(emulation::synchronize(machine, lock, emulation::current_device()));
}

cudaError_t CUDARTAPI cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return note(emulation::enter());
}

// Every GPU reaches every other one's memory at once: nothing is switched on or off.
cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int, unsigned) { return note(emulation::enter()); }
cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int) { return note(emulation::enter()); }

// Nobody profiles; how the host waits is the machine's own affair.
cudaError_t CUDARTAPI cudaProfilerStart(void) { return note(emulation::enter()); }
cudaError_t CUDARTAPI cudaProfilerStop(void) { return note(emulation::enter()); }
cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned) { return note(emulation::enter()); }

}  // extern "C"
