#include "training/start/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/start_thread.h"

namespace dtrain {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

// Slurm signals every process of a step, so a worker gets its own copy and the one that its launcher passes
// on.
StopSignal::StopSignal(Duration copies) : copies_(copies) {
  ::sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) ::sigaddset(&signals_, signal);
  sigset_t taken = signals_;
  ::sigaddset(&taken, SIGUSR1);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &taken, nullptr))
    throw SystemError("pthread_sigmask", error);
  signal_fd_.reset(
      static_cast<int>(check(Sys{::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK)}, "signalfd")));
  end_fd_.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC)}, "eventfd")));
  watcher_ = start_thread("dtrain-signals", [this] { watch(); });
}

StopSignal::~StopSignal() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(end_fd_.get(), &one, sizeof one);
  watcher_.join();
}

void StopSignal::answer_save_request() const noexcept {
  copy_until_.store(steady_clock().now() + copies_, kRelaxed);
  if (save_asked_.exchange(false, kRelaxed)) copy_until_.store(TimePoint::min(), kRelaxed);
}

void StopSignal::watch() noexcept {
  pollfd wanted[] = {{signal_fd_.get(), POLLIN, 0}, {end_fd_.get(), POLLIN, 0}};
  Deadline copies = Deadline::never();  // until then more signals are copies of the first
  while (true) {
    const int ready = ::poll(wanted, 2, copies.poll_timeout_ms());
    if (wanted[1].revents != 0) return;
    if (ready == 0 && copies.expired()) {
      // This thread now takes a further signal with its default action, which ends the process.
      ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
      copies = Deadline::never();
    }
    if (ready <= 0 || wanted[0].revents == 0) continue;
    signalfd_siginfo info{};
    if (::read(signal_fd_.get(), &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo == SIGUSR1) {
      if (copy_until_.exchange(TimePoint::min(), kRelaxed) < steady_clock().now())
        save_asked_.store(true, kRelaxed);
      continue;
    }
    // A launcher tells all workers. Of anybody else's signal the others may not know, who then wait for this
    // one.
    const bool all_are_told = static_cast<pid_t>(info.ssi_pid) == ::getppid();
    if (all_are_told && !deferred_.load(kRelaxed)) ::_exit(static_cast<int>(ExitCode::requeue));
    if (received_.exchange(static_cast<int>(info.ssi_signo), kRelaxed) == 0)
      copies = Deadline::after(copies_);
  }
}

}  // namespace dtrain
