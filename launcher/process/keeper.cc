// The keeper's process: spawn, then wait for one of three things: a child's end, a command, the launcher's
// death.
#include "launcher/process/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>

#include "launcher/process/descendants.h"
#include "launcher/process/descriptors.h"
#include "launcher/process/protocol.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::milliseconds kLeftoverGrace{200};
constexpr int kKillRoundMs = 5;
// No "dtrain" in it: `pkill -9 dtrain` must not hit launcher and keeper at once.
constexpr char kName[] = "worker-keeper";
constexpr int kNotStarted = 127 << 8;  // the wait status of exit code 127

class KeeperProcess {
 public:
  KeeperProcess(const WorkerGroup& group, UniqueFd socket) : group_(group), socket_(std::move(socket)) {}

  void run() {
    ::setpgid(0, 0);  // a Ctrl-C on the terminal is the launcher's to handle
    take_name();
    become_subreaper();
    block_signals();
    spawn_all();
    let_go();
    while (live_ > 0) step();
    sweep();
  }

 private:
  void take_name() {
    ::prctl(PR_SET_NAME, kName);
    std::fill(group_.title.begin(), group_.title.end(), '\0');
    if (!group_.title.empty())
      std::memcpy(group_.title.data(), kName, std::min(group_.title.size() - 1, sizeof kName));
  }

  void block_signals() {
    sigset_t all, child;
    sigfillset(&all);
    check(Sys{::sigprocmask(SIG_SETMASK, &all, nullptr)}, "sigprocmask");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signals_.reset(static_cast<int>(
        check(Sys{::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK)}, "signalfd of the keeper")));
  }

  void spawn_all() {
    pids_.assign(group_.workers.size(), 0);
    int error = 0;
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      const int worker = static_cast<int>(i);
      try {
        if (error == 0) pids_[i] = spawn(group_.workers[i], group_.inherited, socket_.get());
      } catch (const SystemError& failure) {
        error = failure.error_number();
        send({Event::Kind::exec_failed, worker, error, 0});
      }
      if (error != 0) {
        send({Event::Kind::exited, worker, kNotStarted, 0});
        continue;
      }
      ++live_;
      send({Event::Kind::started, worker, pids_[i], 0});
    }
  }

  // Drops every descriptor that is not the keeper's own: pipes must end with the workers, the launcher's
  // streams with the launcher.
  void let_go() {
    if (const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC)); null) {
      for (int fd = 0; fd < 3; ++fd) ::dup2(null.get(), fd);
    }
    close_all_but({socket_.get(), signals_.get()});
  }

  void step() {
    pollfd waits[] = {{socket_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    ::poll(waits, 2, killing_ ? kKillRoundMs : -1);
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) > 0) {
    }
    reap();
    if (waits[0].revents != 0) obey();
    if (killing_) signal_descendants(SIGKILL);
  }

  // The kernel does not say which of several ended first. Of those found together, one killed by a signal is
  // the likelier cause than one that ended by itself, perhaps because it lost the other.
  void reap() {
    std::vector<Event> ends;
    int status = 0;
    rusage usage{};
    pid_t ended;
    while ((ended = ::wait4(-1, &status, WNOHANG, &usage)) > 0) {
      const auto found = std::find(pids_.begin(), pids_.end(), ended);
      if (found == pids_.end()) continue;  // left behind by a worker
      *found = 0;
      --live_;
      ends.push_back(
          {Event::Kind::exited, static_cast<std::int32_t>(found - pids_.begin()), status, usage.ru_maxrss});
    }
    std::stable_partition(ends.begin(), ends.end(),
                          [](const Event& end) { return WIFSIGNALED(static_cast<int>(end.value)); });
    for (const Event& end : ends) send(end);
  }

  void obey() {
    Command command{};
    const ssize_t got = ::recv(socket_.get(), &command, sizeof command, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof command) return launcher_is_gone();
    if (command.kind == Command::Kind::kill_all) killing_ = true;
    if (command.kind == Command::Kind::signal) {
      for (const pid_t pid : pids_) {
        if (pid > 0) ::kill(-pid, command.signal);
      }
    }
  }

  [[noreturn]] void launcher_is_gone() {
    end_descendants(Deadline::never());
    std::error_code ignored;
    if (!group_.scratch_folder.empty()) std::filesystem::remove_all(group_.scratch_folder, ignored);
    ::_exit(0);
  }

  // All workers have ended; what they started and left behind ends with them.
  void sweep() {
    if (!has_children()) return;
    const int left = signal_descendants(SIGTERM);
    signal_descendants(SIGCONT);  // a stopped process gets its SIGTERM only when it runs
    const Deadline grace = Deadline::after(kLeftoverGrace);
    while (!grace.expired() && has_children()) {
      pollfd waits[] = {{socket_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
      ::poll(waits, 2, grace.poll_timeout_ms());
      signalfd_siginfo info;
      while (::read(signals_.get(), &info, sizeof info) > 0) {
      }
      if (waits[0].revents != 0) break;  // told to hurry, or the launcher is gone
    }
    end_descendants(Deadline::never());
    send({Event::Kind::swept, -1, left, 0});
  }

  static bool has_children() {
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    return reaped == 0;
  }

  // A launcher that is gone is noticed by the next poll.
  void send(const Event& event) { ::send(socket_.get(), &event, sizeof event, MSG_NOSIGNAL); }

  const WorkerGroup& group_;
  UniqueFd socket_, signals_;
  std::vector<pid_t> pids_;  // 0: not running
  int live_ = 0;
  bool killing_ = false;
};

}  // namespace

Keeper start_keeper(const WorkerGroup& group) {
  int ends[2];
  check(Sys{::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)}, "socketpair for the keeper");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  check(Sys{::fcntl(ours.get(), F_SETFL, O_NONBLOCK)}, "fcntl O_NONBLOCK");
  const pid_t pid = static_cast<pid_t>(check(Sys{::fork()}, "fork the keeper"));
  if (pid > 0) return {pid, std::move(ours)};
  int code = 0;
  try {
    ours.reset();
    KeeperProcess(group, std::move(theirs)).run();
  } catch (const std::exception&) {
    code = 1;  // the launcher sees the keeper end before its workers and says so
  }
  ::_exit(code);
}

}  // namespace dtrain::launcher
