#include "models/training/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include "runtime/base/check.h"

namespace dtrain {

StopSignal::StopSignal() {
  ::sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) ::sigaddset(&signals_, signal);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr))
    throw SystemError("pthread_sigmask", error);
  signal_fd_.reset(
      static_cast<int>(check(Sys{::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK)}, "signalfd")));
  end_fd_.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC)}, "eventfd")));
  watcher_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(end_fd_.get(), &one, sizeof one);
  watcher_.join();
}

void StopSignal::watch() noexcept {
  pollfd wanted[] = {{signal_fd_.get(), POLLIN, 0}, {end_fd_.get(), POLLIN, 0}};
  while (true) {
    if (::poll(wanted, 2, -1) < 0) continue;
    if (wanted[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signal_fd_.get(), &info, sizeof info) != sizeof info) continue;
    received_.store(static_cast<int>(info.ssi_signo), std::memory_order_relaxed);
    // This thread now takes a further signal with its default action, which ends the process.
    ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    wanted[0].fd = -1;
  }
}

}  // namespace dtrain
