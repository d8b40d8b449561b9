// Walks /proc once a round; rounds are repeated because a process may fork while it is being looked for.
#include "launcher/system/descendants.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstRound = milliseconds(5);
constexpr Duration kLongestRound = milliseconds(250);

UniqueFd open_process(pid_t pid) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

bool send_to(const UniqueFd& process, int signal) {
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

// Running, or ended and not reaped.
bool has_child() {
  siginfo_t ignored{};
  return ::waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

// False when no child is left.
bool reap() {
  pid_t reaped;
  while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
  }
  return reaped == 0;
}

}  // namespace

void become_subreaper() {
  check(Sys{::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)}, "prctl PR_SET_CHILD_SUBREAPER");
}

// A pass over /proc takes milliseconds on a machine with hundreds of processes, and most workers leave none.
std::vector<Process> descendants() {
  if (!has_child()) return {};
  std::unordered_map<pid_t, std::vector<Process>> children;
  for (Process& process : all_processes()) children[process.parent].push_back(std::move(process));
  std::vector<Process> found;
  pid_t parent = ::getpid();
  for (std::size_t next = 0;; ++next) {
    if (const auto below = children.find(parent); below != children.end())
      std::move(below->second.begin(), below->second.end(), std::back_inserter(found));
    if (next == found.size()) return found;
    parent = found[next].pid;
  }
}

// An entry can only vanish while the list is read when its process is reaped meanwhile, which this thread
// would have to do.
std::optional<std::size_t> child_count() {
  const UniqueFd children(::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC));
  if (!children) return std::nullopt;
  std::array<char, 4096> text{};
  std::size_t count = 0;
  ssize_t got;
  while ((got = ::read(children.get(), text.data(), text.size())) > 0)
    count += static_cast<std::size_t>(std::count(text.data(), text.data() + got, ' '));  // one after each
  if (got < 0) return std::nullopt;
  return count;
}

// The descriptor holds on to the process it was opened for; that one is looked at before it is signalled.
bool signal_process(const Process& process, int signal) {
  const UniqueFd handle = open_process(process.pid);
  if (!handle && errno == ESRCH) return false;
  if (!look_again(process)) {
    errno = ESRCH;
    return false;
  }
  if (handle && send_to(handle, signal)) return true;
  // Kernels before 5.3, seccomp filters. Who may not signal the process is refused here once more.
  return (!handle || errno != ESRCH) && ::kill(process.pid, signal) == 0;
}

void signal_group(pid_t group, int signal) {
  siginfo_t ignored{};
  const bool ours = ::waitid(P_PGID, static_cast<id_t>(group), &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
  if (group > 1 && ours) ::kill(-group, signal);
}

int signal_descendants(int signal) {
  const std::vector<Process> all = descendants();
  for (const Process& process : all) signal_process(process, signal);
  return static_cast<int>(all.size());
}

std::vector<Process> end_descendants(const Deadline& deadline) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  Duration round = kFirstRound;
  while (reap()) {
    if (deadline.expired()) {
      std::vector<Process> left = descendants();
      if (left.empty()) left.emplace_back();
      return left;
    }
    signal_descendants(SIGKILL);
    const auto wait = std::min(round, deadline.remaining());
    const timespec time{0, static_cast<long>(std::min<Duration>(wait, kLongestRound).count())};
    ::sigtimedwait(&child, nullptr, &time);
    round = std::min(round * 2, kLongestRound);
  }
  return {};
}

std::vector<std::string> trouble_with_ending() {
  std::vector<std::string> lines;
  const UniqueFd self = open_process(::getpid());
  const char* call = self ? "pidfd_send_signal" : "pidfd_open";
  const bool refused = !self || !send_to(self, 0);
  const int error = errno;
  if (refused && error != ENOSYS)
    lines.push_back(std::string(call) + " is refused here (" + std::strerror(error) +
                    ", a seccomp filter?): processes are signalled by their numbers");
  if (const auto trouble = proc_trouble())
    lines.push_back(*trouble +
                    ": processes that workers move to other process groups cannot be found, signalled or "
                    "ended, and workers that hang are not noticed; mount one (unshare --pid --fork "
                    "--mount-proc)");
  return lines;
}

}  // namespace dtrain::launcher
