#include "launcher/system/init.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

// Of a terminal's keys the kernel tells the child itself, which is in the same process group.
bool is_for_the_child(const siginfo_t& signal) {
  return signal.si_signo != SIGCHLD && signal.si_code != SI_KERNEL;
}

// Nobody reaps orphans but this process, and nobody but their own parent the launcher's children.
[[noreturn]] void serve(pid_t child) {
  sigset_t all;
  sigfillset(&all);
  while (true) {
    siginfo_t signal{};
    if (::sigwaitinfo(&all, &signal) > 0 && is_for_the_child(signal)) ::kill(child, signal.si_signo);
    pid_t ended;
    int status = 0;
    while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended == child) ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
  }
}

}  // namespace

void leave_process_one() {
  if (::getpid() != 1) return;
  sigset_t all, before;
  sigfillset(&all);
  check(Sys{::sigprocmask(SIG_SETMASK, &all, &before)}, "sigprocmask");
  ::signal(SIGCHLD, SIG_DFL);
  const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork, to leave process 1"));
  if (child > 0) serve(child);
  check(Sys{::sigprocmask(SIG_SETMASK, &before, nullptr)}, "sigprocmask");
}

}  // namespace dtrain::launcher
