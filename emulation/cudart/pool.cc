// Allocating and freeing in the order of streams, and the pools it comes from.
#include <cstring>
#include <map>
#include <string>

#include "emulation/cudart/enter.h"

namespace emulation {
namespace {

cudaError_t allocate_async(void** memory, std::size_t bytes, int device, cudaStream_t handle) {
  if (const cudaError_t error = enter(); error != cudaSuccess) return error;
  Machine& machine = Machine::get();
  {
    const auto lock = machine.lock();
    const auto stream = machine.find(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {  // a graph's own memory: nothing here asks for it yet
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (!machine.fault(Place::memory, device, bytes).empty()) return cudaErrorMemoryAllocation;
  ++machine.counts().allocations;
  *memory = machine.memory().allocate(MemoryKind::device, device, bytes, true);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace
}  // namespace emulation

using emulation::Machine;
using emulation::MemoryKind;
using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (properties->location.id < 0 || properties->location.id >= Machine::get().device_count()) {
    return note(cudaErrorInvalidValue);
  }
  *pool = new CUmemPoolHandle_st{properties->location.id, 0};
  return cudaSuccess;
}

// Made on demand, and there as long as the program.
cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (device < 0 || device >= Machine::get().device_count()) return note(cudaErrorInvalidDevice);
  static std::map<int, CUmemPoolHandle_st> pools;
  const auto lock = Machine::get().lock();
  *pool = &pools.try_emplace(device, CUmemPoolHandle_st{device, 0}).first->second;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (pool == nullptr) return note(cudaErrorInvalidValue);
  if (attribute == cudaMemPoolAttrReleaseThreshold)
    std::memcpy(&pool->threshold, value, sizeof pool->threshold);
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return note(pool == nullptr ? cudaErrorInvalidValue : emulation::enter());
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t pool,
                                              cudaStream_t stream) {
  return note(emulation::allocate_async(memory, bytes, pool->device, stream));
}

cudaError_t CUDARTAPI cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return note(emulation::allocate_async(memory, bytes, emulation::current_device(), stream));
}

// The memory goes when the stream is there: who uses it later finds it poisoned.
cudaError_t CUDARTAPI cudaFreeAsync(void* memory, cudaStream_t handle) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (memory == nullptr) return cudaSuccess;
  Machine& machine = Machine::get();
  const auto piece = machine.memory().find(memory);
  if (!piece || piece->data != memory || piece->kind != MemoryKind::device)
    return note(cudaErrorInvalidValue);
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureUnsupported);
  }
  const int device = piece->device;
  machine.queue(stream, emulation::at_once(emulation::Kind::release, "free", [&machine, memory, device] {
                  std::string damage;
                  const bool known = machine.memory().release(memory, damage);
                  if (!known) damage = "memory was freed twice";
                  if (damage.empty()) return;
                  const auto held = machine.lock();
                  machine.lose(device, cudaErrorIllegalAddress, damage);
                }));
  return cudaSuccess;
}

}  // extern "C"
