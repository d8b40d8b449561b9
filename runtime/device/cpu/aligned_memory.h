// Memory for arrays, aligned for vector loads; large blocks ask for huge pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace dtrain::cpu {

/// At least `bytes`, aligned to 64, to be freed with std::free; null when there is no memory. A large block
/// is aligned to 2 MiB and the kernel is asked for pages of that size, which saves page faults and address
/// translations; where it has none the block is as good as any.
inline void* allocate_aligned(std::size_t bytes) {
  constexpr std::size_t kVector = 64, kHugePage = std::size_t{2} << 20, kLarge = 4 * kHugePage;
  const std::size_t alignment = bytes >= kLarge ? kHugePage : kVector;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
#if defined(MADV_HUGEPAGE)
  if (memory != nullptr && alignment == kHugePage)
    static_cast<void>(::madvise(memory, rounded, MADV_HUGEPAGE));
#endif
  return memory;
}

}  // namespace dtrain::cpu
