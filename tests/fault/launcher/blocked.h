// A process that stands still and that nobody lets run on, as one in a system call that does not return:
// unlike one that was stopped, it takes no SIGCONT. SIGKILL ends it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace dtrain::test {

class Blocked {
 public:
  /// Why no process can be held here (a container or Yama forbids tracing); nothing where one can.
  static std::optional<std::string> unavailable();

  /// Returns when all threads of `pid` stand still. Throws SystemError where it cannot be traced.
  explicit Blocked(pid_t pid);
  /// Lets it run on.
  ~Blocked() { end(); }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  void end() const noexcept;

  pid_t tracer_ = -1;
};

}  // namespace dtrain::test
