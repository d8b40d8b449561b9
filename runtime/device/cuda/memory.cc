#include "runtime/device/cuda/memory.h"

#include <cstdint>

namespace dtrain::cuda {
namespace {

UniquePool make_pool(int device_index) {
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device_index;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &wanted), "create a CUDA memory pool");
  UniquePool owned(pool);
  std::uint64_t keep = UINT64_MAX;  // never back to the driver while we live
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "let a CUDA memory pool keep its memory");
  return owned;
}

}  // namespace

Memory::Memory(int device_index, cudaStream_t stream) : stream_(stream), pool_(make_pool(device_index)) {}

void* Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t result = cudaMallocFromPoolAsync(&memory, bytes, pool_.get(), stream_);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // not sticky: the next call may well succeed
    throw DeviceError("cuda: out of memory: " + std::to_string(bytes) + " bytes asked for, " +
                          std::to_string(allocated_bytes()) + " in use; use a smaller batch or more workers",
                      static_cast<int>(result));
  }
  check(result, "allocate " + std::to_string(bytes) + " bytes of GPU memory");
  const std::size_t now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t most = peak_.load(std::memory_order_relaxed);
  while (now > most && !peak_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void Memory::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  static_cast<void>(cudaFreeAsync(memory, stream_));  // can only fail when the device is lost already
  allocated_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace dtrain::cuda
