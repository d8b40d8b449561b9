// vfork, a handful of system calls, execve.
#include "launcher/subreaper/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/subreaper/protocol.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr int kCannotExecute = 127;

// Everything the child touches, laid out before it exists: between vfork and execve it must not allocate.
struct Prepared {
  std::vector<char*> argv, environment;
  cpu_set_t cpus;
  bool bound = false;
  pid_t parent = 0;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

Prepared prepare(const SpawnRequest& request) {
  Prepared prepared{
      pointers(request.argv), pointers(request.environment), {}, !request.cpus.empty(), ::getpid()};
  CPU_ZERO(&prepared.cpus);
  for (const int cpu : request.cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(cpu), &prepared.cpus);
  }
  return prepared;
}

void replace(int from, int to) {
  if (from >= 0 && from != to) ::dup2(from, to);
  if (from == to) ::fcntl(to, F_SETFD, 0);
}

// Runs in the child, on the parent's memory: system calls only.
[[noreturn]] void become(const SpawnRequest& request, const Prepared& prepared, const Inherited& inherited,
                         int events_fd) {
  ::setsid();  // also a process group; one that has no terminal is not stopped for using ours
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(kCannotExecute);  // the parent was gone before the line above
  if (!inherited.ignores_pipe) ::signal(SIGPIPE, SIG_DFL);
  if (!inherited.ignores_size) ::signal(SIGXFSZ, SIG_DFL);
  ::setrlimit(RLIMIT_NOFILE, &inherited.open_files);
  if (prepared.bound) ::sched_setaffinity(0, sizeof prepared.cpus, &prepared.cpus);
  replace(request.in, 0);
  replace(request.out, 1);
  replace(request.err, 2);
  for (const int fd : request.kept_fds) ::fcntl(fd, F_SETFD, 0);
  ::sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  ::execve(request.path.c_str(), prepared.argv.data(), prepared.environment.data());
  const Event event{Event::Kind::exec_failed, request.worker, errno, 0};
  [[maybe_unused]] const auto sent = ::send(events_fd, &event, sizeof event, MSG_NOSIGNAL);
  ::_exit(kCannotExecute);
}

}  // namespace

pid_t spawn(const SpawnRequest& request, const Inherited& inherited, int events_fd) {
  const Prepared prepared = prepare(request);
  const pid_t child = ::vfork();
  if (child == 0) become(request, prepared, inherited, events_fd);
  return static_cast<pid_t>(check(Sys{child}, "vfork " + request.path));
}

std::vector<std::string> merged_environment(const Environment& base, const std::vector<std::string>& removed,
                                            std::initializer_list<const Environment*> layers) {
  Environment merged = base;
  for (const std::string& name : removed) merged.erase(name);
  for (const Environment* layer : layers) {
    for (const auto& [name, value] : *layer) merged[name] = value;
  }
  std::vector<std::string> list;
  list.reserve(merged.size());
  for (const auto& [name, value] : merged) list.push_back(name + "=" + value);
  return list;
}

}  // namespace dtrain::launcher
