// Memory for arrays, aligned for vector loads; large blocks ask for huge pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace dtrain::cpu {

/// At least `bytes`, aligned to 64, to be freed with std::free; null when there is no memory. A block of 2
/// MiB or more is aligned to that and the kernel is asked for pages of that size, which saves page faults and
/// address translations; what is left over at its end has small pages, so that nothing is wasted. Where the
/// kernel has no large pages the block is as good as any.
inline void* allocate_aligned(std::size_t bytes) {
  constexpr std::size_t kVector = 64, kHugePage = std::size_t{2} << 20;
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kVector;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage)
    static_cast<void>(::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE));
#endif
  return memory;
}

}  // namespace dtrain::cpu
