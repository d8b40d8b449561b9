#include "runtime/device/cpu/allocator.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include "runtime/base/error.h"

namespace dtrain::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void* Allocator::allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, round_up(bytes == 0 ? 1 : bytes));
  if (memory == nullptr) {
    throw DeviceError("cpu: cannot allocate " + std::to_string(bytes) + " bytes; " +
                          std::to_string(allocated_bytes()) + " bytes are in use",
                      ENOMEM);
  }
  const std::size_t now = allocated_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void Allocator::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  std::free(memory);
  allocated_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace dtrain::cpu
