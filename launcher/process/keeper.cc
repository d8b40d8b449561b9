// The keeper's process: spawn, then wait for one of three things: a child's end, a command, the launcher's
// death.
#include "launcher/process/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <iterator>
#include <set>

#include "launcher/process/forked.h"
#include "launcher/process/guard.h"
#include "launcher/process/protocol.h"
#include "launcher/system/descendants.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::milliseconds kLeftoverGrace{200};
constexpr std::chrono::milliseconds kFirstKillRound{5}, kLongestKillRound{250};
// No "dtrain" in it: `pkill -9 dtrain` must not hit launcher and keeper at once.
constexpr std::string_view kName = "worker-keeper";
constexpr int kNotStarted = 127 << 8;  // the wait status of exit code 127

class KeeperProcess {
 public:
  KeeperProcess(const WorkerGroup& group, int socket) : group_(group), socket_(socket), lease_(group.lease) {}

  // Returns the process's exit code.
  int run() {
    ::setpgid(0, 0);
    take_name(group_.title, kName);
    become_subreaper();
    signals_ = block_signals_but_watch({SIGCHLD});
    keep_lease();
    spawn_all();
    // Pipes must end with the workers, the launcher's streams with the launcher.
    std::vector<int> kept{socket_, signals_.get(), lease_.timer_fd(), lease_.revoked_fd()};
    keep_streams(kept);
    let_go_of_all_but(kept);
    while (live_ > 0 && !ordered_to_end_) step();
    const int code = ordered_to_end_ ? end_all() : sweep();
    deliver();
    return code;
  }

 private:
  void spawn_all() {
    pids_.assign(group_.workers.size(), 0);
    int error = 0;
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      const int worker = static_cast<int>(i);
      if (fenced_) {
        send({Event::Kind::exited, worker, SIGKILL, 0});
        continue;
      }
      try {
        if (error == 0) pids_[i] = spawn(group_.workers[i], group_.inherited, socket_);
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

  // What a worker that is started again is given.
  void keep_streams(std::vector<int>& kept) const {
    for (const SpawnRequest& worker : group_.workers) {
      if (!worker.may_return) continue;
      kept.insert(kept.end(), {worker.in, worker.out, worker.err});
      kept.insert(kept.end(), worker.kept_fds.begin(), worker.kept_fds.end());
    }
    std::erase(kept, -1);
  }

  void start_again(int worker) {
    const auto i = static_cast<std::size_t>(worker);
    if (i >= pids_.size() || !group_.workers[i].may_return || pids_[i] != 0 || killing_ || fenced_) return;
    try {
      pids_[i] = spawn(group_.workers[i], group_.inherited, socket_);
    } catch (const SystemError& failure) {
      send({Event::Kind::exec_failed, worker, failure.error_number(), 0});
      return;
    }
    ++live_;
    send({Event::Kind::started, worker, pids_[i], 0});
  }

  void step() {
    wait(killing_ ? static_cast<int>(kill_round_.count()) : -1);
    reap();
    if (!killing_) return;
    signal_descendants(SIGKILL);
    kill_round_ = std::min(kill_round_ * 2, kLongestKillRound);
  }

  // For a child's end, a command, or the launcher's end.
  void wait(int timeout_ms) {
    pollfd waits[] = {{socket_, static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                      {signals_.get(), POLLIN, 0},
                      {fenced_ ? -1 : lease_.timer_fd(), POLLIN, 0},
                      {fenced_ ? -1 : lease_.revoked_fd(), POLLIN, 0}};
    ::poll(waits, std::size(waits), timeout_ms);
    keep_lease();
    drain_signals(signals_);
    send_waiting();
    if ((waits[0].revents & ~POLLOUT) != 0) obey();
  }

  // Nothing that was begun is let finish: another node may be about to write.
  void keep_lease() {
    if (fenced_ || !lease_.over()) return;
    fenced_ = killing_ = true;
    send({Event::Kind::fenced, -1, 0, 0});
    signal_descendants(SIGKILL);
  }

  // The kernel does not say which of several ended first. Of those found together, one killed by a signal is
  // the likelier cause than one that ended by itself, perhaps because it lost the other.
  void reap() {
    std::vector<Event> ends;
    int status = 0;
    rusage usage{};
    pid_t ended;
    while ((ended = ::wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage)) > 0) {
      const auto found = std::find(pids_.begin(), pids_.end(), ended);
      if (found == pids_.end()) continue;  // left behind by a worker
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        tell_stop(static_cast<std::int32_t>(found - pids_.begin()), status);
        continue;
      }
      *found = 0;
      --live_;
      ends.push_back(
          {Event::Kind::exited, static_cast<std::int32_t>(found - pids_.begin()), status, usage.ru_maxrss});
    }
    std::stable_partition(ends.begin(), ends.end(),
                          [](const Event& end) { return WIFSIGNALED(static_cast<int>(end.value)); });
    for (const Event& end : ends) send(end);
  }

  // A stop that the launcher ordered (Ctrl-Z) is no news.
  void tell_stop(std::int32_t worker, int status) {
    if (WIFSTOPPED(status) && !suspended_) {
      told_stopped_.insert(worker);
      send({Event::Kind::stopped, worker, WSTOPSIG(status), 0});
    } else if (WIFCONTINUED(status) && told_stopped_.erase(worker) > 0) {
      send({Event::Kind::stopped, worker, 0, 0});
    }
  }

  void obey() {
    Command command{};
    const ssize_t got = ::recv(socket_, &command, sizeof command, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof command) {
      ordered_to_end_ = true;  // or the launcher has gone
      return;
    }
    if (command.kind == Command::Kind::kill_all) killing_ = true;
    if (command.kind == Command::Kind::start_again) start_again(command.signal);
    if (command.kind == Command::Kind::signal) {
      if (command.signal == SIGSTOP || command.signal == SIGCONT) suspended_ = command.signal == SIGSTOP;
      for (const pid_t pid : pids_) {
        if (pid > 0) ::kill(-pid, command.signal);  // not reaped yet, so the number is still its own
      }
    }
  }

  int end_all() {
    const std::vector<Process> stuck = end_descendants(Deadline::after(kStuckAfter));
    for (const Process& process : stuck) send({Event::Kind::stuck, -1, process.pid, 0});
    std::error_code ignored;
    for (const std::string& folder : group_.scratch_folders) {
      if (is_closed(socket_)) std::filesystem::remove_all(folder, ignored);
    }
    stuck_ = static_cast<int>(stuck.size());
    return stuck.empty() ? 0 : kKeeperLeftSome;
  }

  // All workers have ended; what they started and left behind ends with them.
  int sweep() {
    if (!has_children()) return 0;
    const int left = signal_descendants(SIGTERM);
    signal_descendants(SIGCONT);  // a stopped process gets its SIGTERM only when it runs
    const Deadline grace = Deadline::after(kLeftoverGrace);
    while (!grace.expired() && !killing_ && !ordered_to_end_ && has_children()) wait(grace.poll_timeout_ms());
    const int code = end_all();
    send({Event::Kind::swept, -1, std::max(0, left - stuck_), 0});
    return code;
  }

  static bool has_children() {
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    return reaped == 0;
  }

  // Never blocks: a launcher that stands still must not keep the keeper from its work. One that is gone is
  // noticed by the next poll.
  void send(const Event& event) {
    unsent_.push_back(event);
    send_waiting();
  }

  void send_waiting() {
    while (!unsent_.empty()) {
      const ssize_t sent = ::send(socket_, &unsent_.front(), sizeof(Event), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) return;
      unsent_.pop_front();
    }
  }

  // The last events, when nothing is left to be done but to wait for a launcher that reads them.
  void deliver() {
    while (!unsent_.empty() && !is_closed(socket_)) {
      pollfd wait{socket_, POLLOUT, 0};
      ::poll(&wait, 1, -1);
      send_waiting();
    }
  }

  const WorkerGroup& group_;
  int socket_;
  UniqueFd signals_;
  std::vector<pid_t> pids_;  // 0: not running
  std::deque<Event> unsent_;
  int live_ = 0, stuck_ = 0;
  LeaseWatch lease_;
  bool killing_ = false, fenced_ = false, ordered_to_end_ = false;
  bool suspended_ = false;  // the launcher has stopped all workers
  std::set<std::int32_t> told_stopped_;
  std::chrono::milliseconds kill_round_ = kFirstKillRound;
};

}  // namespace

Keeper start_keeper(const WorkerGroup& group) {
  int ends[2];
  check(Sys{::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)}, "socketpair for the keeper");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  check(Sys{::fcntl(ours.get(), F_SETFL, O_NONBLOCK)}, "fcntl O_NONBLOCK");
  // Counted before there is a guard: whoever reads that nobody is at work must be able to rely on it.
  if (group.lease != nullptr) group.lease->begin_work();
  const Sys fork(::fork());
  if (fork.result < 0 && group.lease != nullptr) group.lease->end_work();
  const pid_t pid = static_cast<pid_t>(check(fork, "fork the guard"));
  if (pid > 0) return {pid, std::move(ours)};
  ours.reset();
  run_guard({theirs.get(), group.scratch_folders, group.title, group.lease},
            [&] { return KeeperProcess(group, theirs.get()).run(); });
}

}  // namespace dtrain::launcher
