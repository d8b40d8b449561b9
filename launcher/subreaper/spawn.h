// Starts one program: vfork and execve with everything prepared beforehand, so that a start costs a fraction
// of a millisecond whatever the caller's size.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "launcher/plan/binding.h"
#include "runtime/base/environment.h"

namespace dtrain::launcher {

/// How the launcher itself was started, to be handed on to workers unchanged.
struct Inherited {
  sigset_t mask{};            ///< blocked signals
  rlimit open_files{};        ///< RLIMIT_NOFILE
  bool ignores_pipe = false;  ///< SIGPIPE was ignored
  bool ignores_size = false;  ///< SIGXFSZ (ulimit -f) was ignored
};

struct SpawnRequest {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< "NAME=value"
  int in = -1, out = -1, err = -1;       ///< become 0, 1, 2; -1 keeps the caller's
  std::vector<int> kept_fds;             ///< stay open in the program under their numbers
  CpuList cpus;                          ///< bound to these; empty: not bound
  bool may_return = false;               ///< may be started again by itself, while others run
  int worker = 0;                        ///< named in the event that reports a failed execve
};

/// Starts the program in a session, and so a process group, of its own; it dies with SIGKILL when the calling
/// process ends. To be called with all signals blocked, from a thread that outlives the program. Returns its
/// pid. A failed execve is reported by the child as Event::exec_failed on `events_fd`, and the child exits
/// with 127. Throws SystemError when no process could be made.
pid_t spawn(const SpawnRequest& request, const Inherited& inherited, int events_fd);

/// `base` without `removed`, then the layers on top of each other, in execve's form.
std::vector<std::string> merged_environment(const Environment& base, const std::vector<std::string>& removed,
                                            std::initializer_list<const Environment*> layers);

}  // namespace dtrain::launcher
