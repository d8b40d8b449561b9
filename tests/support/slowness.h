// How slow a program may be through the way it was built. Limits on time that only end what hangs are
// multiplied by it.
#pragma once

namespace dtrain::test {

/// A sanitizer costs a factor of up to ten, on top of a busy machine.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowness = 10;
#else
inline constexpr int kSlowness = 1;
#endif

/// A sanitizer's allocator ends the program where operator new throws.
inline constexpr bool kNewThrows = kSlowness == 1;

/// A sanitizer opens pipes to find out what memory it may look at.
inline constexpr bool kNeedsNoDescriptors = kSlowness == 1;

}  // namespace dtrain::test
