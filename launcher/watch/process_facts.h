// What /proc tells about a worker from outside: what it uses, and what each of its threads is doing.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/watch/progress.h"

namespace dtrain::launcher {

/// What each of `roots` has used, all below it included, from one pass over the processes below this one.
/// Empty for one that has gone, or whose numbers may not be read.
std::vector<std::optional<Usage>> usage_of(const std::vector<pid_t>& roots);

/// What a thread is doing.
struct ThreadFacts {
  pid_t id = 0;
  std::string folder;  ///< below /proc
  std::string name;
  char state = 0;            ///< as ps shows it
  std::string system_call;   ///< "futex", "call 318", "" while it computes or where it may not be told
  std::string wait_channel;  ///< the kernel's function it sleeps in, "" where there is none or it is secret
};

/// A report shows no more threads of a process.
inline constexpr std::size_t kMostThreads = 256;

/// The threads of a process, the first one first, at most `limit` of them.
std::vector<ThreadFacts> threads_of(pid_t pid, std::size_t limit);

/// The process that does the work of `pid`, which is below this one: `pid` itself, unless it only waits for
/// its one child, as a shell script does; then that child's.
pid_t working_process(pid_t pid);

/// "sleeping in futex (futex_wait_queue)", for people.
std::string text_of(const ThreadFacts& thread);

}  // namespace dtrain::launcher
