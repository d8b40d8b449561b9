// fork, exec, read until the end or the deadline.
#include "launcher/system/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kMaxOutput = 65536;
constexpr int kCannotExecute = 127;
constexpr Duration kPatience = std::chrono::seconds(2);

[[noreturn]] void become(const std::vector<char*>& argv, int out, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotExecute);
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
  ::dup2(out, 1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // the launcher blocks what it reads from a descriptor
  ::execvp(argv[0], argv.data());
  ::_exit(kCannotExecute);
}

// False when the deadline passed first.
bool read_all(int fd, const Deadline& deadline, std::string& text) {
  std::array<char, 4096> chunk;
  while (!deadline.expired()) {
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) <= 0) continue;
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (text.size() < kMaxOutput) text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return false;
}

// It may have to put something in order first, as a debugger has that has stopped somebody.
void end(pid_t child) {
  ::kill(child, SIGTERM);
  for (const Deadline patience = Deadline::after(kPatience); !patience.expired();) {
    siginfo_t news{};
    if (::waitid(P_PID, static_cast<id_t>(child), &news, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        news.si_pid == child)
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
}

}  // namespace

HelperResult run_helper(const std::vector<std::string>& argv, const Deadline& deadline) {
  std::vector<char*> pointers;
  for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe for " + argv[0]);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork " + argv[0]));
  if (child == 0) become(pointers, theirs.get(), parent);
  theirs.reset();
  HelperResult result;
  result.timed_out = !read_all(ours.get(), deadline, result.out);
  if (result.timed_out) end(child);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace dtrain::launcher
