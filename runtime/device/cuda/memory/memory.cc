#include "runtime/device/cuda/memory/memory.h"

#include <algorithm>
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

/// While it lives this thread may allocate though a stream is being recorded.
class AllocationAllowed {
 public:
  AllocationAllowed() { exchange(); }
  ~AllocationAllowed() { exchange(); }
  AllocationAllowed(const AllocationAllowed&) = delete;
  AllocationAllowed& operator=(const AllocationAllowed&) = delete;

 private:
  void exchange() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void* allocate_segment(int device_index, std::size_t bytes) {
  const AllocationAllowed allowed;
  check(cudaSetDevice(device_index), "choose a GPU");
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocate " + std::to_string(bytes) + " bytes of GPU memory for a graph");
  return memory;
}

}  // namespace

RecordedMemory::RecordedMemory(int device_index)
    : arena([device_index](std::size_t bytes) { return allocate_segment(device_index, bytes); },
            [](void* segment) { static_cast<void>(cudaFree(segment)); }) {}

Memory::Memory(int device_index, cudaStream_t stream)
    : device_index_(device_index), stream_(stream), pool_(make_pool(device_index)) {}

void Memory::begin_recording() {
  // What the steps so far needed is needed again, from the arena: the pool may let go of its copy.
  check(cudaMemPoolTrimTo(pool_.get(), 0), "trim a CUDA memory pool");
  auto recording = std::make_shared<RecordedMemory>(device_index_);
  const std::lock_guard lock(mutex_);
  recorded_.push_back(recording);
  recording_ = std::move(recording);
}

std::shared_ptr<RecordedMemory> Memory::end_recording() noexcept {
  const std::lock_guard lock(mutex_);
  return std::move(recording_);
}

void Memory::retire(const std::shared_ptr<RecordedMemory>& recorded) noexcept {
  const std::lock_guard lock(mutex_);
  for (void* memory : recorded->spared) static_cast<void>(cudaFreeAsync(memory, stream_));
  recorded->spared.clear();
  if (recorded->arena.is_idle()) {
    std::erase(recorded_, recorded);
  } else {
    retired_.push_back(recorded);
  }
}

bool Memory::give_to_arena(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& recorded : recorded_) {
    if (!recorded->arena.deallocate(memory)) continue;
    const auto gone = std::find(retired_.begin(), retired_.end(), recorded);
    if (gone != retired_.end() && recorded->arena.is_idle()) {
      retired_.erase(gone);
      std::erase(recorded_, std::shared_ptr(recorded));
    }
    return true;
  }
  if (recording_) recording_->spared.push_back(memory);
  return recording_ != nullptr;
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (recording_) memory = recording_->arena.allocate(bytes);
  }
  if (memory == nullptr) memory = allocate_in_pool(bytes);
  const std::size_t now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t most = peak_.load(std::memory_order_relaxed);
  while (now > most && !peak_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void* Memory::allocate_in_pool(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaMallocFromPoolAsync(&memory, bytes, pool_.get(), stream_);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // not sticky: the next call may well succeed
    throw DeviceError("cuda: out of memory: " + std::to_string(bytes) + " bytes asked for, " +
                          std::to_string(allocated_bytes()) + " in use; use a smaller batch or more workers",
                      static_cast<int>(result));
  }
  check(result, "allocate " + std::to_string(bytes) + " bytes of GPU memory");
  return memory;
}

void Memory::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (!give_to_arena(memory))
    static_cast<void>(cudaFreeAsync(memory, stream_));  // can only fail when the device is lost already
  allocated_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace dtrain::cuda
