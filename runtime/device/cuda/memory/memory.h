// The memory of one GPU: a stream-ordered pool of its own that keeps what it once had, so that after the
// first step an allocation is a list operation of the driver's and never waits for the GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/memory/arena.h"

namespace dtrain::cuda {

using UniquePool = Unique<PointerTraits<cudaMemPool_t, cudaMemPoolDestroy>>;

/// What a graph holds of a device's memory.
struct RecordedMemory {
  explicit RecordedMemory(int device_index);
  Arena arena;                ///< what was allocated while it was recorded
  std::vector<void*> spared;  ///< older memory given back meanwhile: the graph may use it
};

/// Thread-safe.
class Memory {
 public:
  /// Allocations are ordered on `stream`, borrowed.
  Memory(int device_index, cudaStream_t stream);

  /// Usable by work queued on the stream from now on; aligned to 256. Throws DeviceError naming the size.
  void* allocate(std::size_t bytes);
  /// Free once work queued on the stream until now is done.
  void deallocate(void* memory, std::size_t bytes) noexcept;

  /// From now to end_recording() memory comes from an arena of its own.
  void begin_recording();
  /// What the recording holds; hand it to retire() when the graph is gone.
  std::shared_ptr<RecordedMemory> end_recording() noexcept;
  /// Lets go of it as soon as nothing of it is handed out.
  void retire(const std::shared_ptr<RecordedMemory>& recorded) noexcept;

  std::size_t allocated_bytes() const noexcept { return allocated_.load(std::memory_order_relaxed); }
  std::size_t peak_allocated_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }

 private:
  void* allocate_in_pool(std::size_t bytes);
  /// True when an arena has taken it, or will hold it until its graph goes.
  bool give_to_arena(void* memory) noexcept;

  int device_index_;
  cudaStream_t stream_;
  UniquePool pool_;
  std::atomic<std::size_t> allocated_ = 0, peak_ = 0;

  std::mutex mutex_;                                       // guards the rest
  std::shared_ptr<RecordedMemory> recording_;              ///< null but while something is recorded
  std::vector<std::shared_ptr<RecordedMemory>> recorded_;  ///< all there are
  std::vector<std::shared_ptr<RecordedMemory>> retired_;   ///< those whose graph is gone
};

/// Memory for the time of one kernel call; what was queued before it goes may still use it.
class Scratch {
 public:
  Scratch(Memory& memory, std::size_t bytes)
      : memory_(memory), bytes_(bytes), data_(bytes == 0 ? nullptr : memory.allocate(bytes)) {}
  ~Scratch() {
    if (data_ != nullptr) memory_.deallocate(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const noexcept { return data_; }

 private:
  Memory& memory_;
  std::size_t bytes_;
  void* data_;
};

}  // namespace dtrain::cuda
