// A program on a terminal of its own, whose session it leads: what it shows is collected, and keys can be
// typed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/fd.h"

namespace dtrain::test {

struct TerminalSize {
  unsigned short rows = 24, columns = 60;
};

class OnTerminal {
 public:
  /// Starts `argv` with `environment` added. Throws SystemError.
  explicit OnTerminal(const std::vector<std::string>& argv,
                      const std::map<std::string, std::string>& environment = {}, TerminalSize size = {});
  /// Kills the program if it still runs.
  ~OnTerminal();
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void type(const std::string& keys);
  /// All that has appeared until now.
  const std::string& shown();
  /// Waits until `text` has appeared `times` times; false at the timeout, times kSlowness.
  bool shows(const std::string& text, int times = 1,
             std::chrono::milliseconds timeout = std::chrono::seconds(20));
  /// Waits for the program's end, and takes all that it shows until then: exit code, 128 + signal, or -1 when
  /// it still runs after `timeout`.
  int wait(std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Whether the terminal shows what is typed.
  bool echoes() const;

 private:
  UniqueFd master_;
  pid_t pid_ = -1;
  int code_ = -1;
  bool ended_ = false;
  std::string shown_;
};

}  // namespace dtrain::test
