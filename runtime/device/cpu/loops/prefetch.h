// Memory that a loop over rows comes to soon. A row that is gone through several times keeps the processor
// busy for longer than it looks ahead, so that nothing would be on its way from memory meanwhile.
#pragma once

#include <cstdint>

namespace dtrain::cpu {

/// Asks for the cache lines of `count` elements, which need not exist: an address that is not there is
/// ignored.
template <class T>
inline void prefetch(const T* from, std::int64_t count) {
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i);
}

}  // namespace dtrain::cpu
