// An eventcount on a futex in shared memory: how a sleeping rank is told that there is something to look at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/clock.h"

namespace dtrain {

/// A view; each process has its own. One process sleeps at it, any may notify it. The memory is zeros at
/// first and must outlive the view.
class EventCount {
 public:
  static constexpr std::size_t kBytes = 64;

  /// `memory` is aligned to a cache line.
  explicit EventCount(std::byte* memory) noexcept : state_(reinterpret_cast<State*>(memory)) {}

  /// After a sequentially consistent store of what changed. Costs one load if no thread sleeps.
  void notify() noexcept {
    if (std::atomic_ref(state_->asleep).load(std::memory_order_seq_cst) != 0) wake();
  }

  /// Where the sleeper runs, as it said last; 0: it has not. A hint.
  void say_core(std::uint32_t core) noexcept {
    std::atomic_ref(state_->core).store(core, std::memory_order_relaxed);
  }
  std::uint32_t core() const noexcept {
    return std::atomic_ref(state_->core).load(std::memory_order_relaxed);
  }

  /// Sleeps until notified, for at most `longest`, unless `look` returns true: it is called once, after which
  /// nothing can be missed.
  template <class Look>
  void await(Duration longest, Look look) {
    const Asleep asleep(*state_);
    const std::uint32_t seen = std::atomic_ref(state_->epoch).load(std::memory_order_seq_cst);
    if (!look()) wait(seen, longest);
  }

 private:
  struct State {
    std::uint32_t epoch;
    std::uint32_t asleep;
    std::uint32_t core;
  };
  // Also ends when looking throws.
  class Asleep {
   public:
    explicit Asleep(State& state) noexcept : flag_(state.asleep) {
      flag_.store(1, std::memory_order_seq_cst);
    }
    ~Asleep() { flag_.store(0, std::memory_order_seq_cst); }
    Asleep(const Asleep&) = delete;
    Asleep& operator=(const Asleep&) = delete;

   private:
    std::atomic_ref<std::uint32_t> flag_;
  };

  void wake() noexcept;
  void wait(std::uint32_t seen, Duration longest) noexcept;

  State* state_;
};

}  // namespace dtrain
