// Strangers that mean harm, in a process of their own: they connect to every port that the ranks of a world
// listen on, as long as it is open.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace dtrain::test {

class Strangers {
 public:
  /// Forks, to be called while this process has one thread. They begin at once, look for ports among this
  /// process's other children, and hold up to `idle` connections open without a word.
  explicit Strangers(int idle);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  /// What they have done so far; seen by processes forked later too.
  struct Counts {
    std::atomic<long> strikes{0}, idle{0};
    std::atomic<int> open_ports{0};  ///< when they looked last
  };
  const Counts& counts() const noexcept { return *counts_; }

 private:
  Counts* counts_;
  pid_t pid_ = -1;
};

}  // namespace dtrain::test
