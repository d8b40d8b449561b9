// The subreaper's process: spawn, then wait for one of three things: a child's end, a command, the launcher's
// death.
#include "launcher/subreaper/subreaper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include "launcher/subreaper/event_outbox.h"
#include "launcher/subreaper/guard.h"
#include "launcher/subreaper/protocol.h"
#include "launcher/subreaper/worker_trees.h"
#include "launcher/system/descendants.h"
#include "launcher/system/forked.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::milliseconds kFirstKillRound{5}, kLongestKillRound{250};
// How often the workers' trees are looked at while somebody is still to be asked or told.
constexpr std::chrono::milliseconds kLook{250};
// How often they are looked at for what has been stopped, and the share of one core that this may cost: a
// look takes the longer the more processes the machine has.
constexpr std::chrono::seconds kStopLook{1}, kLongestStopLook{10};
constexpr double kStopShare = 0.005;
// For a worker that begins to handle a signal, as one that still loads its libraries.
constexpr std::chrono::seconds kTellFor{60};
constexpr std::size_t kNamedLeftovers = 4;
// No "dtrain" in it: `pkill -9 dtrain` must not hit launcher and subreaper at once.
constexpr std::string_view kSubreaperName = "subreaper";
constexpr int kNotStarted = 127 << 8;  // the wait status of exit code 127

class SubreaperProcess {
 public:
  SubreaperProcess(const WorkerGroup& group, int socket)
      : group_(group),
        socket_(socket),
        events_(socket),
        trees_(::getpid(), static_cast<int>(group.workers.size()), manner_of),
        lease_(group.lease) {}

  // Returns the process's exit code.
  int run() {
    ::setpgid(0, 0);
    take_name(group_.title, kSubreaperName);
    become_subreaper();
    signals_ = block_signals_but_watch({SIGCHLD});
    keep_lease();
    spawn_all();
    // Pipes must end with the workers, the launcher's streams with the launcher.
    std::vector<int> kept{socket_, signals_.get(), lease_.timer_fd(), lease_.revoked_fd()};
    keep_streams(kept);
    detach_from_all_but(kept);
    while (!ordered_to_end_ && (live_ > 0 || (!killing_ && has_children()))) step();
    const int code = end_all();
    if (swept_ > 0) events_.send({Event::Kind::swept, -1, std::max(0, swept_ - stuck_), 0});
    events_.deliver();
    return code;
  }

 private:
  void spawn_all() {
    pids_.assign(group_.workers.size(), 0);
    left_.assign(group_.workers.size(), false);
    int error = 0;
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      const int worker = static_cast<int>(i);
      if (fenced_) {
        events_.send({Event::Kind::exited, worker, SIGKILL, 0});
        continue;
      }
      try {
        if (error == 0) pids_[i] = spawn(group_.workers[i], group_.inherited, socket_);
      } catch (const SystemError& failure) {
        error = failure.error_number();
        events_.send({Event::Kind::exec_failed, worker, error, 0});
      }
      if (error != 0) {
        events_.send({Event::Kind::exited, worker, kNotStarted, 0});
        continue;
      }
      began(worker);
    }
  }

  void began(int worker) {
    const pid_t pid = pids_[static_cast<std::size_t>(worker)];
    ++live_;
    trees_.on_start(worker, pid);
    events_.send({Event::Kind::started, worker, pid, 0});
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
    look();
    for (const Process& process : trees_.started_by(worker)) signal_process(process, SIGKILL);
    try {
      pids_[i] = spawn(group_.workers[i], group_.inherited, socket_);
    } catch (const SystemError& failure) {
      events_.send({Event::Kind::exec_failed, worker, failure.error_number(), 0});
      return;
    }
    began(worker);
  }

  void step() {
    if (live_ == 0) tell_leftovers();
    const bool looks = live_ == 0 || ending_ || !telling_.empty();
    wait(killing_ ? Deadline::after(kill_round_) : looks ? Deadline::after(kLook) : stop_look_);
    std::vector<Event> ends = reap();
    if (killing_) {
      tell_ends(ends);
      kill_all();
      kill_round_ = std::min(kill_round_ * 2, kLongestKillRound);
      return;
    }
    const bool left_some = std::find(left_.begin(), left_.end(), true) != left_.end();
    // What an ended worker leaves becomes our child, or is below such a child.
    const bool left_none = left_some && child_count() == static_cast<std::size_t>(live_);
    for (Event& end : ends) {
      if (!left_none) break;
      end.kind = Event::Kind::exited_alone;
      left_[static_cast<std::size_t>(end.worker)] = false;
    }
    tell_ends(ends);
    if (looks || (left_some && !left_none)) look();
    if (left_some) tell_emptied(left_none);
    if (ending_) ask_to_end();
    if (!telling_.empty()) tell();
    if (stop_look_.expired()) look_for_stops();
  }

  // What is asked to end is continued as well, and what the launcher has stopped is no news.
  void look_for_stops() {
    const TimePoint begin = steady_clock().now();
    if (!ending_ && !suspended_) {
      look();
      for (const WorkerTrees::Stop& stop : trees_.take_stops())
        events_.send({stop.continued ? Event::Kind::continued : Event::Kind::stopped, stop.worker,
                      stop.process.pid, 0});
    }
    const Duration took = steady_clock().now() - begin;
    stop_look_ = Deadline::after(std::clamp<Duration>(std::chrono::duration_cast<Duration>(took / kStopShare),
                                                      kStopLook, kLongestStopLook));
  }

  void look() { trees_.look(descendants()); }

  // The groups also where /proc is of no use.
  void kill_all() {
    signal_groups(SIGKILL);
    signal_descendants(SIGKILL);
  }

  void signal_groups(int signal) {
    std::set<pid_t> groups = old_groups_;
    groups.insert(pids_.begin(), pids_.end());
    for (const pid_t group : groups) {
      signal_group(group, signal);
      if (signal != SIGKILL) signal_group(group, SIGCONT);
    }
  }

  // For a child's end, a command, or the launcher's end.
  void wait(const Deadline& deadline) {
    pollfd waits[] = {{socket_, static_cast<short>(events_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                      {signals_.get(), POLLIN, 0},
                      {fenced_ ? -1 : lease_.timer_fd(), POLLIN, 0},
                      {fenced_ ? -1 : lease_.revoked_fd(), POLLIN, 0}};
    ::poll(waits, std::size(waits), deadline.poll_timeout_ms());
    keep_lease();
    drain_signals(signals_);
    events_.flush();
    if ((waits[0].revents & ~POLLOUT) != 0) obey();
  }

  // Nothing that was begun is let finish: another node may be about to write.
  void keep_lease() {
    if (fenced_ || !lease_.over()) return;
    fenced_ = killing_ = true;
    events_.send({Event::Kind::fenced, -1, 0, 0});
    kill_all();
  }

  // The kernel does not say which of several ended first. Of those found together, one killed by a signal is
  // the likelier cause than one that ended by itself, perhaps because it lost the other.
  std::vector<Event> reap() {
    std::vector<Event> ends;
    int status = 0;
    rusage usage{};
    pid_t ended;
    while ((ended = ::wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage)) > 0) {
      const auto found = std::find(pids_.begin(), pids_.end(), ended);
      if (found == pids_.end()) continue;  // left behind by a worker
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        tell_stop(static_cast<std::int32_t>(found - pids_.begin()), ended, status);
        continue;
      }
      const auto worker = found - pids_.begin();
      old_groups_.insert(*found);
      *found = 0;
      --live_;
      trees_.on_end(static_cast<int>(worker));
      left_[static_cast<std::size_t>(worker)] = true;
      ends.push_back({Event::Kind::exited, static_cast<std::int32_t>(worker), status, usage.ru_maxrss});
    }
    std::stable_partition(ends.begin(), ends.end(),
                          [](const Event& end) { return WIFSIGNALED(static_cast<int>(end.value)); });
    return ends;
  }

  void tell_ends(const std::vector<Event>& ends) {
    for (const Event& end : ends) events_.send(end);
  }

  // A stop that the launcher ordered (Ctrl-Z) is no news.
  void tell_stop(std::int32_t worker, pid_t pid, int status) {
    if (WIFSTOPPED(status) && !suspended_) {
      told_stopped_.insert(worker);
      events_.send({Event::Kind::stopped, worker, pid, WSTOPSIG(status)});
    } else if (WIFCONTINUED(status) && told_stopped_.erase(worker) > 0) {
      events_.send({Event::Kind::continued, worker, pid, 0});
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
    if (command.kind == Command::Kind::kill_all) begin_killing();
    if (command.kind == Command::Kind::start_again) start_again(command.value);
    if (command.kind == Command::Kind::signal) pass_on(command.value);
  }

  void begin_killing() {
    killing_ = true;
    if (live_ == 0) swept_ = std::max(swept_, static_cast<int>(descendants().size()));
  }

  void pass_on(int signal) {
    if (signal == SIGSTOP || signal == SIGCONT) {
      suspended_ = signal == SIGSTOP;
      for (const pid_t pid : pids_) {
        if (pid > 0) ::kill(-pid, signal);  // not reaped yet, so the number is still its own
      }
      return;
    }
    look();
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      telling_.push_back({signal, Deadline::after(kTellFor), std::vector<bool>(pids_.size(), false)});
      return tell();
    }
    // Where /proc is of no use nothing is known but the groups.
    if (proc_trouble()) signal_groups(signal);
    ending_ = true;
    if (live_ == 0) swept_ = std::max(swept_, static_cast<int>(descendants().size()));
    trees_.begin_ending(signal);
    ask_to_end();
    // What is stopped notices no signal before it runs; nor can it help others to end.
    signal_descendants(SIGCONT);
  }

  void ask_to_end() {
    for (const Addressed& asked : trees_.to_end()) {
      send_signal(asked);
      signal_process(asked.process, SIGCONT);
    }
  }

  void tell() {
    for (Telling& telling : telling_) {
      for (std::size_t i = 0; i < pids_.size(); ++i) {
        if (telling.told[i] || pids_[i] == 0) continue;
        const std::vector<Addressed> told = trees_.to_tell(static_cast<int>(i), telling.signal);
        for (const Addressed& one : told) send_signal(one);
        telling.told[i] = !told.empty();
      }
    }
    std::erase_if(telling_, [this](const Telling& telling) {
      bool all = true;
      for (std::size_t i = 0; i < pids_.size(); ++i) all = all && (telling.told[i] || pids_[i] == 0);
      return all || telling.until.expired();
    });
  }

  // Our own children cannot have lost their numbers to others.
  void send_signal(const Addressed& asked) {
    if (std::find(pids_.begin(), pids_.end(), asked.process.pid) != pids_.end())
      ::kill(asked.process.pid, asked.signal);
    else
      signal_process(asked.process, asked.signal);
  }

  void tell_emptied(bool left_none) {
    for (std::size_t i = 0; i < left_.size(); ++i) {
      const int worker = static_cast<int>(i);
      if (!left_[i] || pids_[i] != 0 || (!left_none && !trees_.started_by(worker).empty())) continue;
      left_[i] = false;
      events_.send({Event::Kind::emptied, worker, 0, 0});
    }
  }

  // All workers have ended, and something that they started has not: the launcher decides. Not at once: much
  // of it ends by itself, and a daemon needs a moment to leave its session.
  void tell_leftovers() {
    if (!leftovers_due_) leftovers_due_ = Deadline::after(kLook);
    if (!leftovers_due_->expired()) return;
    look();
    const auto left = trees_.in_background();
    if (told_leftovers_ && (left.empty() == (*told_leftovers_ == 0))) return;
    for (std::size_t i = 0; i < std::min(left.size(), kNamedLeftovers); ++i)
      events_.send({Event::Kind::leftover, left[i].first, left[i].second.pid, 0});
    told_leftovers_ = left.size();
    events_.send({Event::Kind::leftovers, -1, static_cast<std::int64_t>(left.size()), 0});
  }

  int end_all() {
    kill_all();
    const std::vector<Process> stuck = end_descendants(Deadline::after(kStuckAfter));
    for (const Process& process : stuck) events_.send({Event::Kind::stuck, -1, process.pid, 0});
    std::error_code ignored;
    for (const std::string& folder : group_.scratch_folders) {
      if (is_closed(socket_)) std::filesystem::remove_all(folder, ignored);
    }
    stuck_ = static_cast<int>(stuck.size());
    return stuck.empty() ? 0 : kSubreaperLeftSome;
  }

  static bool has_children() {
    pid_t reaped;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    return reaped == 0;
  }

  // A signal that asks for something.
  struct Telling {
    int signal = 0;
    Deadline until;
    std::vector<bool> told;  // the workers
  };

  const WorkerGroup& group_;
  int socket_;
  EventOutbox events_;
  UniqueFd signals_;
  std::vector<pid_t> pids_;     // 0: not running
  std::vector<bool> left_;      // workers that have ended, and may have left something
  std::set<pid_t> old_groups_;  // of workers that have ended
  WorkerTrees trees_;
  std::vector<Telling> telling_;
  std::optional<Deadline> leftovers_due_;      // when the launcher is to be told
  std::optional<std::size_t> told_leftovers_;  // how many in the background
  int live_ = 0, stuck_ = 0, swept_ = 0;
  LeaseWatch lease_;
  bool killing_ = false, fenced_ = false, ordered_to_end_ = false, ending_ = false;
  bool suspended_ = false;  // the launcher has stopped all workers
  std::set<std::int32_t> told_stopped_;
  Deadline stop_look_ = Deadline::after(kStopLook);
  std::chrono::milliseconds kill_round_ = kFirstKillRound;
};

}  // namespace

Subreaper start_subreaper(const WorkerGroup& group) {
  int ends[2];
  check(Sys{::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)}, "socketpair for the subreaper");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  check(Sys{::fcntl(ours.get(), F_SETFL, O_NONBLOCK)}, "fcntl O_NONBLOCK");
  // Counted before there is a guard: a reader of "nobody is at work" must be able to rely on it.
  if (group.lease != nullptr) group.lease->begin_work();
  const Sys fork(::fork());
  if (fork.result < 0 && group.lease != nullptr) group.lease->end_work();
  const pid_t pid = static_cast<pid_t>(check(fork, "fork the guard"));
  if (pid > 0) return {pid, std::move(ours)};
  ours.reset();
  run_guard({theirs.get(), group.scratch_folders, group.title, group.lease},
            [&] { return SubreaperProcess(group, theirs.get()).run(); });
}

}  // namespace dtrain::launcher
