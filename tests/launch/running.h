// A launcher that runs beside the test: signals can be sent to it, and everything it started can be found
// again by a mark in the environment, however far it moved away.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace dtrain::test {

class Running {
 public:
  /// Starts `argv` with `environment` added; what it prints goes to files. Throws SystemError.
  explicit Running(const std::vector<std::string>& argv,
                   const std::map<std::string, std::string>& environment = {});
  /// Kills the program and all that carries its mark.
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// Waits for its end: exit code, 128 + signal, or -1 when it still runs after `timeout`.
  int wait(std::chrono::milliseconds timeout = std::chrono::seconds(30));
  std::string out() const;
  std::string err() const;
  /// Living processes below the program (itself not counted), found by the mark; zombies are not alive.
  std::vector<pid_t> marked() const;
  /// The pid of the program's child of that name, 0 when there is none (yet).
  pid_t child(const std::string& name) const;
  /// The child of its guard; 0 when there is none (yet).
  pid_t subreaper() const;
  pid_t guard() const { return child("process-guard"); }

 private:
  TempDir folder_;
  std::string mark_;
  pid_t pid_ = -1;
  int code_ = -1;
  bool ended_ = false;
};

/// Polls `condition` until it holds; false at the timeout, times kSlowness.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds timeout = std::chrono::seconds(20));

/// A TCP port of 127.0.0.1 that nobody held a moment ago.
int free_port();

/// A positive number from the environment, for the length of stress tests.
int rounds_from_environment(const char* variable, int otherwise);

}  // namespace dtrain::test
