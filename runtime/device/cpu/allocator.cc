#include "runtime/device/cpu/allocator.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/cpu/aligned_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define DTRAIN_POISON(memory, bytes) __asan_poison_memory_region(memory, bytes)
#define DTRAIN_UNPOISON(memory, bytes) __asan_unpoison_memory_region(memory, bytes)
#else
#define DTRAIN_POISON(memory, bytes) static_cast<void>(0)
#define DTRAIN_UNPOISON(memory, bytes) static_cast<void>(0)
#endif

namespace dtrain::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kFirstPower = 8;  ///< steps of 64 bytes up to here
constexpr std::size_t kLargest = std::size_t{1} << 47;

/// One size class: its number and the bytes of its blocks.
struct Bucket {
  std::size_t index, bytes;
};

Bucket bucket_of(std::size_t bytes) {
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  const int power = std::max(static_cast<int>(std::bit_width(wanted - 1)) - 1, kFirstPower);
  if (wanted <= (std::size_t{1} << kFirstPower)) {
    const std::size_t step = (wanted - 1) / kAlignment;
    return {step, (step + 1) * kAlignment};
  }
  const std::size_t base = std::size_t{1} << power, quarter = base / 4;
  const std::size_t step = (wanted - base - 1) / quarter;
  return {static_cast<std::size_t>(power - kFirstPower + 1) * 4 + step, base + (step + 1) * quarter};
}

}  // namespace

Allocator::~Allocator() { release_cached(); }

void* Allocator::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (bytes <= kLargest) {
    const Bucket bucket = bucket_of(bytes);
    auto& list = free_[bucket.index];
    if (!list.empty()) {
      memory = list.back();
      list.pop_back();
      cached_ -= bucket.bytes;
      DTRAIN_UNPOISON(memory, bucket.bytes);
    } else {
      memory = allocate_aligned(bucket.bytes);
      if (memory == nullptr) {
        release_cached();
        memory = allocate_aligned(bucket.bytes);
      }
    }
  }
  if (memory == nullptr) {
    throw DeviceError("cpu: cannot allocate " + std::to_string(bytes) + " bytes; " +
                          std::to_string(allocated_) + " bytes are in use. Lower the batch size",
                      ENOMEM);
  }
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return memory;
}

void Allocator::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  allocated_ -= bytes;
  const Bucket bucket = bucket_of(bytes);
  if (cached_ + bucket.bytes <= peak_) {
    try {
      free_[bucket.index].push_back(memory);
      cached_ += bucket.bytes;
      DTRAIN_POISON(memory, bucket.bytes);
      return;
    } catch (const std::bad_alloc&) {
      // The list cannot grow: give the block back instead.
    }
  }
  std::free(memory);
}

void Allocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  release_cached();
}

void Allocator::release_cached() noexcept {
  for (auto& list : free_) {
    for (void* memory : list) std::free(memory);  // the sanitizer forgets its poison in free()
    list.clear();
  }
  cached_ = 0;
}

std::size_t Allocator::allocated_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

std::size_t Allocator::peak_allocated_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::size_t Allocator::cached_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return cached_;
}

}  // namespace dtrain::cpu
