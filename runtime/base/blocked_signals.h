// Keeps signals away from a piece of code or from a thread started in it.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace dtrain {

/// Blocks all signals in this thread while it lives. Threads started meanwhile inherit that for good: the
/// program's signals then go to the threads that expect them.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    // Faults of the thread's own are nobody else's.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Writing to a connection the peer has closed raises SIGPIPE in the writing thread; while this lives it does
/// nothing, without changing what the program has arranged for it elsewhere.
class PipeSignalBlocked {
 public:
  PipeSignalBlocked() noexcept {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlocked() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec kNow{};
    sigtimedwait(&pipe_, nullptr, &kNow);  // takes back what came meanwhile
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalBlocked(const PipeSignalBlocked&) = delete;
  PipeSignalBlocked& operator=(const PipeSignalBlocked&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace dtrain
