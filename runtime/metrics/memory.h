// How much memory this process holds.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrain {

/// What training holds at a moment, all in bytes.
struct MemoryUse {
  std::int64_t allocated_bytes = 0;       ///< handed out by the device's allocator: tensors and scratch
  std::int64_t peak_allocated_bytes = 0;  ///< the most there ever was of it
  std::int64_t resident_bytes = 0;        ///< of the process, in the machine's memory
  std::int64_t peak_resident_bytes = 0;   ///< the most there ever was of it
};

/// Resident set in bytes, from /proc/self/statm; 0 when it cannot be read.
std::int64_t resident_bytes() noexcept;

/// The largest resident set this process ever had, in bytes, as the kernel counts it.
std::int64_t peak_resident_bytes() noexcept;

/// The second field of statm text times `page_bytes`; 0 for text that is not statm. Pure.
std::int64_t parse_resident_bytes(std::string_view statm, std::int64_t page_bytes) noexcept;

}  // namespace dtrain
