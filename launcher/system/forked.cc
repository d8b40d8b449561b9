// Small system calls around fork.
#include "launcher/system/forked.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {
namespace {

void close_between(unsigned first, unsigned last) {
  if (first > last || ::close_range(first, last, 0) == 0) return;
  // Kernels before 5.9.
  const auto limit = static_cast<unsigned>(std::max(::sysconf(_SC_OPEN_MAX), 1024L));
  for (unsigned fd = first; fd <= last && fd < limit; ++fd) ::close(static_cast<int>(fd));
}

}  // namespace

void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 3;
  for (const int fd : kept) {
    if (fd < 3) continue;
    close_between(first, static_cast<unsigned>(fd) - 1);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_between(first, ~0U);
}

void detach_from_all_but(std::vector<int> kept) {
  if (const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC)); null) {
    for (int fd = 0; fd < 3; ++fd) ::dup2(null.get(), fd);
  }
  close_all_but(std::move(kept));
}

void take_name(std::span<char> title, std::string_view name) {
  ::prctl(PR_SET_NAME, std::string(name).c_str());
  std::fill(title.begin(), title.end(), '\0');
  if (!title.empty()) std::memcpy(title.data(), name.data(), std::min(title.size() - 1, name.size()));
}

UniqueFd block_signals_but_watch(const std::vector<int>& watched) {
  sigset_t all, some;
  sigfillset(&all);
  check(Sys{::sigprocmask(SIG_SETMASK, &all, nullptr)}, "sigprocmask");
  sigemptyset(&some);
  for (const int signal : watched) sigaddset(&some, signal);
  return UniqueFd(
      static_cast<int>(check(Sys{::signalfd(-1, &some, SFD_CLOEXEC | SFD_NONBLOCK)}, "signalfd")));
}

void continue_if_stopped(pid_t child) {
  siginfo_t news{};
  const bool stopped = child > 0 &&
                       ::waitid(P_PID, static_cast<id_t>(child), &news, WSTOPPED | WNOHANG) == 0 &&
                       news.si_pid == child;
  if (stopped) ::kill(child, SIGCONT);
}

void reap_soon(pid_t child) {
  const Deadline end = Deadline::after(std::chrono::seconds(1));
  while (::waitpid(child, nullptr, WNOHANG) == 0 && !end.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool is_closed(int socket) {
  pollfd wait{socket, 0, 0};
  return ::poll(&wait, 1, 0) > 0 && (wait.revents & POLLHUP) != 0;
}

void drain_signals(const UniqueFd& signals) {
  signalfd_siginfo info;
  while (::read(signals.get(), &info, sizeof info) > 0) {
  }
}

}  // namespace dtrain::launcher
