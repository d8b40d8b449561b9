// The launcher's signals as a descriptor, and the state in which workers get them back.
#pragma once

#include <optional>
#include <vector>

#include "launcher/subreaper/spawn.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// From its making on, the signals that concern a job are blocked; while it lives they come out of `fd()`.
/// One that comes later does nothing: the job's exit code is settled, and must not become that signal's.
/// SIGPIPE and SIGXFSZ are ignored from then on.
class Signals {
 public:
  /// `stop_signals` end a job; those the launcher was started with as ignored (nohup) stay ignored. Throws
  /// SystemError.
  explicit Signals(const std::vector<int>& stop_signals);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const noexcept { return fd_.get(); }
  /// The next signal that has come, SIGCHLD left out; empty when there is none.
  std::optional<int> next();
  bool stops(int signal) const;
  /// One that ends the job has come and waits to be taken.
  bool stop_waits() const;
  const Inherited& inherited() const noexcept { return inherited_; }

 private:
  std::vector<int> stop_signals_;
  Inherited inherited_;
  UniqueFd fd_;
};

}  // namespace dtrain::launcher
