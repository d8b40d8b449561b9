// Which of a device's places of work a thread uses, so that two threads can compute on one device: what
// kernels keep between calls (compiled primitives, scratch memory) is kept once for each slot.
#pragma once

namespace dtrain {

/// 0 for a thread that holds no ThreadSlotScope.
int thread_slot() noexcept;

/// Gives this thread the lowest slot from 1 on that no other thread has, for as long as it lives: threads
/// that come and go find what their predecessors compiled.
class ThreadSlotScope {
 public:
  ThreadSlotScope();
  ~ThreadSlotScope();
  ThreadSlotScope(const ThreadSlotScope&) = delete;
  ThreadSlotScope& operator=(const ThreadSlotScope&) = delete;

 private:
  int before_, slot_;
};

/// Gives this thread a slot until it ends, if it has none. For a thread that meets a device which another one
/// uses already.
int lasting_thread_slot();

}  // namespace dtrain
