// Threads of a block take turns on one operating system thread: a fiber is a stack of its own and the
// registers to continue with. A switch costs a few nanoseconds, so a block of 1,024 threads is nothing to
// fear.
#pragma once

#include <cstddef>

namespace emulation {

/// Runs `entry(argument)` on a stack of its own when it is switched to. Used by one thread; never moves.
class Fiber {
 public:
  using Entry = void (*)(void*);
  /// `entry` must never return: it switches away for good. Throws std::bad_alloc without memory for the
  /// stack.
  Fiber(Entry entry, void* argument);
  /// The calling thread itself, to come back to.
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Leaves the running fiber, which must be `from`, and continues this one where it left off.
  void resume(Fiber& from) noexcept;

 private:
  static void begin(Fiber* self) noexcept;

  void* saved_ = nullptr;  ///< stack pointer while it does not run
  std::byte* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  // What AddressSanitizer and ThreadSanitizer are told about it.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t bottom_bytes_ = 0;
  void* tsan_ = nullptr;
  Fiber* came_from_ = nullptr;
};

}  // namespace emulation
