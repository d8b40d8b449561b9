// The CPU device's memory. Tensors come and go each step in the same sizes; blocks given back are kept for
// the next step, because fresh memory of megabytes costs more in page faults than the kernel that fills it.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

namespace dtrain::cpu {

/// Thread-safe. Sizes are rounded up to one of four steps between powers of two (at most a quarter is
/// wasted). Blocks given back are cached up to the most bytes that were ever in use at once; what goes beyond
/// returns to the system, as does everything when the system has no more.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  /// Every block must have been given back.
  ~Allocator();

  /// Memory of at least `bytes`, aligned to 64, content undefined. Throws DeviceError naming the size.
  void* allocate(std::size_t bytes);
  /// `bytes` as asked for; null is ignored.
  void deallocate(void* memory, std::size_t bytes) noexcept;
  /// Returns every cached block to the system.
  void trim() noexcept;

  /// Bytes asked for and not yet given back; the most there ever were; bytes cached.
  std::size_t allocated_bytes() const noexcept;
  std::size_t peak_allocated_bytes() const noexcept;
  std::size_t cached_bytes() const noexcept;

 private:
  /// Four steps for each power of two from 64 bytes up to what a 64-bit address space holds.
  static constexpr std::size_t kBuckets = 4 * 48;

  void release_cached() noexcept;

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kBuckets> free_;
  std::size_t allocated_ = 0;
  std::size_t peak_ = 0;
  std::size_t cached_ = 0;
};

}  // namespace dtrain::cpu
