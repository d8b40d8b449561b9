// Walks /proc once a round; rounds are repeated because a process may fork while it is being looked for.
#include "launcher/system/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstRound = milliseconds(5);
constexpr Duration kLongestRound = milliseconds(250);

struct DirectoryCloser {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

// /proc/<pid>/stat: "pid (name) state ppid …", where the name may hold anything; the 22nd value is the start.
// Zombies count: one whose first thread has ended may have others that run.
std::optional<Process> read_process(int proc_fd, const char* pid) {
  const std::string path = std::string(pid) + "/stat";
  const UniqueFd file(::openat(proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[1024];
  const ssize_t length = ::read(file.get(), text, sizeof text - 1);
  if (length <= 0) return std::nullopt;
  text[length] = 0;
  const char* open = std::strchr(text, '(');
  const char* close = std::strrchr(text, ')');
  Process process;
  unsigned long long started = 0;
  if (open == nullptr || close == nullptr ||
      std::sscanf(close + 1,
                  " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &process.state, &process.parent, &started) != 3)
    return std::nullopt;
  process.pid = std::atoi(pid);
  process.started = started;
  process.name.assign(open + 1, close);
  return process;
}

std::unordered_map<pid_t, std::vector<Process>> children_of_all() {
  std::unordered_map<pid_t, std::vector<Process>> children;
  const std::unique_ptr<DIR, DirectoryCloser> proc(::opendir("/proc"));
  if (!proc) return children;
  while (const dirent* entry = ::readdir(proc.get())) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    auto process = read_process(::dirfd(proc.get()), entry->d_name);
    if (process && process->parent > 0) children[process->parent].push_back(std::move(*process));
  }
  return children;
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

void reap_as_process_one() {
  if (::getpid() == 1) reap();
}

std::optional<Process> find_process(pid_t pid) {
  const UniqueFd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return proc ? read_process(proc.get(), std::to_string(pid).c_str()) : std::nullopt;
}

std::vector<Process> descendants() {
  auto children = children_of_all();
  std::vector<Process> found;
  pid_t parent = ::getpid();
  for (std::size_t next = 0;; ++next) {
    if (const auto below = children.find(parent); below != children.end())
      std::move(below->second.begin(), below->second.end(), std::back_inserter(found));
    if (next == found.size()) return found;
    parent = found[next].pid;
  }
}

bool has_ended_child(pid_t parent) {
  const auto children = children_of_all();
  const auto below = children.find(parent);
  return below != children.end() && std::any_of(below->second.begin(), below->second.end(),
                                                [](const Process& child) { return child.state == 'Z'; });
}

// The descriptor holds on to the process it was opened for; that one is looked at before it is signalled.
bool signal_process(const Process& process, int signal) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!handle && errno != ENOSYS) return false;
  const auto now = find_process(process.pid);
  if (!now || now->started != process.started) {
    errno = ESRCH;
    return false;
  }
  if (!handle) return ::kill(process.pid, signal) == 0;  // kernels before 5.3
  return ::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0) == 0;
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
    if (deadline.expired()) return descendants();
    signal_descendants(SIGKILL);
    const auto wait = std::min(round, deadline.remaining());
    const timespec time{0, static_cast<long>(std::min<Duration>(wait, kLongestRound).count())};
    ::sigtimedwait(&child, nullptr, &time);
    round = std::min(round * 2, kLongestRound);
  }
  return {};
}

std::string text_of(const Process& process) {
  std::string text =
      "process " + std::to_string(process.pid) + " (" + process.name + ", state " + process.state;
  struct stat status {};
  if (::stat(("/proc/" + std::to_string(process.pid)).c_str(), &status) == 0 && status.st_uid != ::geteuid())
    text += ", of user " + std::to_string(status.st_uid);
  return text + ")";
}

}  // namespace dtrain::launcher
