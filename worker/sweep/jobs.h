// The launchers of a sweep's runs, as child processes. Each supervises its run's workers and leaves none of
// them behind, however it ends (decision 002), and dies with this process: so nothing of a sweep outlives it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/fd.h"
#include "worker/sweep/places.h"

namespace dtrain::sweep {

/// One program to start.
struct Job {
  std::vector<std::string> command;  ///< the program's path and its arguments
  Environment environment;
  Place place;
  std::filesystem::path log;  ///< stdout and stderr are appended to it
};

/// One that has ended.
struct JobEnd {
  int id = 0;      ///< as start() was given it
  int status = 0;  ///< as waitpid() has it
};

/// While it lives, SIGINT, SIGTERM, SIGHUP and SIGCHLD are blocked and read here. One at a time; to be used
/// from the thread that made it, whose end is the jobs' end.
class Jobs {
 public:
  /// Throws SystemError.
  Jobs();
  /// Kills what still runs: on the way out of an error nothing is left behind.
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  /// Starts a program in a process group of its own. A program that cannot be executed ends with code 127,
  /// and its log says why. Throws SystemError.
  void start(int id, const Job& job);
  std::size_t running() const noexcept { return pids_.size(); }

  /// Waits at most so long (-1: without limit) for a job's end or a signal.
  void wait(int timeout_ms);
  /// The next job that has ended; nothing when none has.
  std::optional<JobEnd> take_end();
  /// The next signal that has come, SIGCHLD left out.
  std::optional<int> take_signal();
  /// To every job's launcher, which hands it on to its workers.
  void signal_all(int signal) noexcept;

 private:
  std::map<pid_t, int> pids_;
  sigset_t mask_before_{};
  UniqueFd signals_;
};

/// Runs a program to its end, with the environment given; what it printed, stdout and stderr together (1 MiB
/// at most). Throws SystemError.
struct Finished {
  int status = 0;
  std::string output;
};
Finished run_to_end(const std::vector<std::string>& command, const Environment& environment);

}  // namespace dtrain::sweep
