#include "tests/fault/launcher/blocked.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain::test {
namespace {

// 0, or the error that kept a thread from being held.
int hold_threads(pid_t pid) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const std::string name = entry.path().filename();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0 ||
        ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
        ::waitpid(thread, nullptr, __WALL) != thread)
      return errno;
  }
  return 0;
}

// Of a process of its own, so that nobody else's waitpid() sees what a tracer is told. The end of a traced
// process is told its parent when the tracer has heard of it.
[[noreturn]] void trace(pid_t pid, int told) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int error = EIO;
  try {
    error = hold_threads(pid);
  } catch (const std::exception&) {
    error = ESRCH;  // it has ended meanwhile
  }
  if (::write(told, &error, sizeof error) != sizeof error) ::_exit(1);
  while (::waitpid(-1, nullptr, __WALL) > 0 || errno == EINTR) {
  }
  ::_exit(0);
}

}  // namespace

std::optional<std::string> Blocked::unavailable() {
  const pid_t pid = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) ::pause();
  }
  std::optional<std::string> why;
  try {
    const Blocked held(pid);
  } catch (const SystemError& error) {
    why = error.what();
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return why;
}

Blocked::Blocked(pid_t pid) {
  std::array<int, 2> pipe{};
  check(Sys{::pipe(pipe.data())}, "pipe");
  const UniqueFd ours(pipe[0]);
  UniqueFd theirs(pipe[1]);
  tracer_ = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (tracer_ == 0) trace(pid, theirs.get());
  theirs.reset();
  int error = 0;
  if (::read(ours.get(), &error, sizeof error) != sizeof error) error = EIO;
  if (error == 0) return;
  end();
  throw SystemError("ptrace of process " + std::to_string(pid), error);
}

void Blocked::end() const noexcept {
  ::kill(tracer_, SIGKILL);
  ::waitpid(tracer_, nullptr, 0);
}

}  // namespace dtrain::test
