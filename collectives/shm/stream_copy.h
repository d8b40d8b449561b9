// Copies into memory that another core reads next.
#pragma once

#include <cstddef>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace dtrain {

/// Copies past the caches, where the processor can: the other core still has the lines it read last time, and
/// taking them back one by one is what a plain copy would wait for. `to` is aligned to a cache line; visible
/// to others before anything stored later.
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::size_t done = 0;
#ifdef __SSE2__
  for (; done + sizeof(__m128i) <= bytes; done += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done)));
  }
  _mm_sfence();
#endif
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace dtrain
