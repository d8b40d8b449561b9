// Memory that a kernel needs only while it runs, kept from call to call.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/device/cpu/aligned_memory.h"

namespace dtrain::cpu {

/// One block, aligned to 64, that only grows: the largest need decides. Not thread-safe.
class Scratch {
 public:
  /// Valid until the next call; content is not kept. Throws DeviceError when there is no memory.
  std::byte* at_least(std::size_t bytes) {
    if (bytes <= capacity_) return memory_.get();
    memory_.reset();
    capacity_ = 0;
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    memory_.reset(static_cast<std::byte*>(allocate_aligned(rounded)));
    if (!memory_) {
      throw DeviceError("cpu: cannot allocate " + std::to_string(bytes) + " bytes of scratch memory", ENOMEM);
    }
    capacity_ = rounded;
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0;
};

/// Hands out pieces of one scratch block, each aligned to 64 bytes.
class ScratchPieces {
 public:
  /// Room for `floats` in at most `pieces` pieces.
  ScratchPieces(Scratch& scratch, std::int64_t floats, int pieces)
      : next_(reinterpret_cast<float*>(
            scratch.at_least(static_cast<std::size_t>(floats + pieces * kStep) * sizeof(float)))) {}
  float* take(std::int64_t floats) {
    float* piece = next_;
    next_ += (floats + kStep - 1) / kStep * kStep;
    return piece;
  }

 private:
  static constexpr std::int64_t kStep = 16;
  float* next_;
};

}  // namespace dtrain::cpu
