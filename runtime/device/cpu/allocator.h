// The CPU device's memory.
#pragma once

#include <atomic>
#include <cstddef>

namespace dtrain::cpu {

/// Thread-safe; counts what is handed out.
class Allocator {
 public:
  /// Memory of at least `bytes`, aligned to 64. Throws DeviceError naming the size.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;

  std::size_t allocated_bytes() const noexcept { return allocated_.load(std::memory_order_relaxed); }
  std::size_t peak_allocated_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> allocated_{0};
  std::atomic<std::size_t> peak_{0};
};

}  // namespace dtrain::cpu
