// Where a stream of random numbers must not be drawn from: inside a training step its numbers would be the
// same on every rank, would not be saved, and would be others when a forward is computed again for backward.
#pragma once

#include <utility>

namespace dtrain {

/// While it lives, Generator's draws in this thread, and in threads that fork() starts from it, throw
/// UsageError; with `refuse` false they are allowed again, for what draws inside a step from a generator that
/// the step itself has seeded.
class DrawGuard {
 public:
  explicit DrawGuard(bool refuse = true) noexcept : before_(std::exchange(refused(), refuse)) {}
  ~DrawGuard() { refused() = before_; }
  DrawGuard(const DrawGuard&) = delete;
  DrawGuard& operator=(const DrawGuard&) = delete;

  /// Whether draws are refused: per thread, since ranks may be threads of one process.
  static bool& refused() noexcept {
    static thread_local bool refused = false;
    return refused;
  }

 private:
  bool before_;
};

}  // namespace dtrain
