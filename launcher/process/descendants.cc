// Walks /proc once a round; rounds are repeated because a process may fork while it is being looked for.
#include "launcher/process/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

// The parent of `pid` from /proc/<pid>/stat: "pid (name) state ppid …", where the name may hold anything. 0
// when the process is gone. Zombies count: one whose first thread has ended may have others that run.
pid_t parent_of(int proc_fd, const char* pid) {
  const std::string path = std::string(pid) + "/stat";
  const UniqueFd file(::openat(proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  char text[512];
  const ssize_t length = ::read(file.get(), text, sizeof text - 1);
  if (length <= 0) return 0;
  text[length] = 0;
  const char* close = std::strrchr(text, ')');
  char state = 0;
  int parent = 0;
  if (close == nullptr || std::sscanf(close + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

std::unordered_map<pid_t, std::vector<pid_t>> children_of_all() {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  const std::unique_ptr<DIR, DirectoryCloser> proc(::opendir("/proc"));
  if (!proc) return children;
  while (const dirent* entry = ::readdir(proc.get())) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const pid_t parent = parent_of(::dirfd(proc.get()), entry->d_name);
    if (parent > 0) children[parent].push_back(std::atoi(entry->d_name));
  }
  return children;
}

}  // namespace

void become_subreaper() {
  check(Sys{::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)}, "prctl PR_SET_CHILD_SUBREAPER");
}

std::vector<pid_t> descendants() {
  const auto children = children_of_all();
  std::vector<pid_t> found{::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (const auto below = children.find(found[i]); below != children.end())
      found.insert(found.end(), below->second.begin(), below->second.end());
  }
  found.erase(found.begin());
  return found;
}

int signal_descendants(int signal) {
  const std::vector<pid_t> all = descendants();
  for (const pid_t pid : all) ::kill(pid, signal);
  return static_cast<int>(all.size());
}

bool end_descendants(const Deadline& deadline, pid_t spared) {
  constexpr timespec kRound{0, 5'000'000};
  // One look at /proc can miss a process that was just forked; its parent is dead before the second.
  constexpr int kLooks = 2;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (int quiet = 0; quiet < kLooks;) {
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped == -1 && errno == ECHILD) return true;
    if (deadline.expired()) return false;
    int ended = 0;
    for (const pid_t pid : descendants()) {
      if (pid == spared) continue;
      ::kill(pid, SIGKILL);
      ++ended;
    }
    quiet = ended > 0 ? 0 : quiet + 1;
    if (spared < 0 || ended > 0) ::sigtimedwait(&child, nullptr, &kRound);
    if (spared < 0) quiet = 0;
  }
  return true;
}

}  // namespace dtrain::launcher
