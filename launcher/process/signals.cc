// Blocks signals and reads them from a signalfd.
#include "launcher/process/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals(const std::vector<int>& stop_signals) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : stop_signals) {
    if (is_ignored(signal)) continue;
    stop_signals_.push_back(signal);
    sigaddset(&handled, signal);
  }
  for (const int signal : {SIGCHLD, SIGUSR1, SIGUSR2, SIGTSTP}) sigaddset(&handled, signal);
  inherited_.ignores_pipe = is_ignored(SIGPIPE);
  inherited_.ignores_size = is_ignored(SIGXFSZ);
  check(Sys{::getrlimit(RLIMIT_NOFILE, &inherited_.open_files)}, "getrlimit RLIMIT_NOFILE");
  check(Sys{::sigprocmask(SIG_BLOCK, &handled, &inherited_.mask)}, "sigprocmask");
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit fails, as on a full disk
  ::signal(SIGCHLD, SIG_DFL);  // our parent may have had it ignored: then nothing could be waited for
  fd_.reset(static_cast<int>(check(Sys{::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)}, "signalfd")));
}

std::optional<int> Signals::next() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

bool Signals::stops(int signal) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signal) != stop_signals_.end();
}

bool Signals::stop_waits() const {
  sigset_t pending;
  sigemptyset(&pending);
  ::sigpending(&pending);
  return std::any_of(stop_signals_.begin(), stop_signals_.end(),
                     [&](int signal) { return sigismember(&pending, signal) == 1; });
}

}  // namespace dtrain::launcher
