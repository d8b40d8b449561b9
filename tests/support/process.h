// Runs a program under a deadline and collects what it printed: how tests drive the real binaries and real
// ranks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dtrain::test {

struct RunOptions {
  std::map<std::string, std::string> environment;  ///< added to (or replacing) the test's own
  std::string working_directory;                   ///< empty: the test's own
  std::string standard_input;
  /// The program's process group is killed after it, times kSlowness, and the test fails.
  std::chrono::seconds timeout{30};
  std::function<void(pid_t)>
      while_running;  ///< called in a thread of its own with the program's pid; must return
};

/// Default options with another timeout.
inline RunOptions limited_to(std::chrono::seconds timeout) {
  RunOptions options;
  options.timeout = timeout;
  return options;
}

struct RunResult {
  int exit_code = -1;  ///< 128 + signal when it was killed by one
  std::string out;
  std::string err;
};

/// For a child before it becomes a program: SIGHUP, SIGINT and SIGQUIT, which nohup or a shell's & have
/// ignored, do what they do by default.
void default_signals() noexcept;

/// Starts `argv` in its own process group, waits for it and both its streams. Throws SystemError when it
/// cannot start.
RunResult run(const std::vector<std::string>& argv, const RunOptions& options = {});

/// The path of a dtrain program under test: $DTRAIN_BIN/name. Throws UsageError when DTRAIN_BIN is unset.
std::string program(const std::string& name);

/// dtrain-launch with `arguments`: the words to start it, and run() of them.
std::vector<std::string> launch_command(std::vector<std::string> arguments);
RunResult launch(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// Processes whose environment holds `name`=`value`, by their RANK, or whatever `variable` a launcher says
/// that in (those without one are left out).
std::map<int, pid_t> ranks_marked(const std::string& name, const std::string& value,
                                  const std::string& variable = "RANK");

/// How many live processes have `name`=`value` in their environment; zombies do not count.
int count_marked(const std::string& name, const std::string& value);

/// Forks `world` processes that each run `body(rank)`; returns each one's exit code (128 + signal when
/// killed, an exception in `body` prints its text and counts as 1). All are killed at `timeout`, times
/// kSlowness, with code 128 + SIGKILL; the test fails and names those.
std::vector<int> run_ranks(int world, const std::function<void(int rank)>& body,
                           std::chrono::seconds timeout = std::chrono::seconds{30});

}  // namespace dtrain::test
