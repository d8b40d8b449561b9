// Waits for the end of subreaper, launcher or lease, then makes sure that nothing is left.
#include "launcher/subreaper/guard.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>

#include "launcher/subreaper/protocol.h"
#include "launcher/system/descendants.h"
#include "launcher/system/forked.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

// No "dtrain" in it, nor in the subreaper's: `pkill -9 dtrain` must hit the launcher only; and not the
// subreaper's name either.
constexpr std::string_view kGuardName = "process-guard";
// The subreaper needs milliseconds; one that stands still never ends.
constexpr Duration kSubreaperPatience = std::chrono::milliseconds(500);
// How often the subreaper is looked at, and how many looks in a row find it standing still before it is held.
constexpr Duration kSubreaperLook = std::chrono::seconds(1);
constexpr int kLooks = 4;

void tell(int socket, const Event& event) {
  ::send(socket, &event, sizeof event, MSG_NOSIGNAL | MSG_DONTWAIT);
}

class GuardProcess {
 public:
  GuardProcess(const GuardSettings& settings, const std::function<int()>& subreaper)
      : settings_(settings), lease_(settings.lease) {
    ::setpgid(0, 0);  // a Ctrl-C on the terminal is the launcher's to handle
    become_subreaper();
    // The launcher's death also wakes a guard that was stopped.
    check(Sys{::prctl(PR_SET_PDEATHSIG, SIGCONT)}, "prctl PR_SET_PDEATHSIG");
    signals_ = block_signals_but_watch({SIGCHLD});
    subreaper_ = static_cast<pid_t>(check(Sys{::fork()}, "fork the subreaper"));
    if (subreaper_ == 0) run_subreaper(subreaper);
    take_name(settings_.title, kGuardName);
    detach_from_all_but({settings_.socket, signals_.get(), lease_.timer_fd(), lease_.revoked_fd()});
  }

  int run() {
    while (!status_ && !(patience_ && patience_->expired())) wait();
    const int code = finished() ? WEXITSTATUS(*status_) : end_all();
    if (code == 0 && settings_.lease != nullptr) settings_.lease->end_work();
    std::error_code ignored;
    for (const std::string& folder : settings_.scratch_folders) {
      if (is_closed(settings_.socket)) std::filesystem::remove_all(folder, ignored);
    }
    return code;
  }

 private:
  [[noreturn]] void run_subreaper(const std::function<int()>& subreaper) {
    int code = 1;
    try {
      signals_.reset();
      // The guard's death wakes a subreaper that was stopped: it may be the launcher's death too.
      ::prctl(PR_SET_PDEATHSIG, SIGCONT);
      code = subreaper();
    } catch (const SystemError& error) {
      tell(settings_.socket, {Event::Kind::unable, -1, error.error_number(), 0});
    } catch (const std::exception&) {
      // The launcher sees the workers' ends missing and says so.
    }
    ::_exit(code);
  }

  // A subreaper that ended by itself has seen to everything.
  bool finished() const {
    return status_ && WIFEXITED(*status_) &&
           (WEXITSTATUS(*status_) == 0 || WEXITSTATUS(*status_) == kSubreaperLeftSome);
  }

  int end_all() {
    if (!status_) take_over();
    const std::vector<Process> stuck = end_descendants(Deadline::after(kStuckAfter));
    for (const Process& process : stuck) tell(settings_.socket, {Event::Kind::stuck, -1, process.pid, 0});
    return stuck.empty() ? 0 : kSubreaperLeftSome;
  }

  // From a subreaper that stands still: how those ended that it has not reaped is known to nobody else. One
  // that does not even end on SIGKILL keeps what it knows.
  void take_over() {
    ::kill(subreaper_, SIGKILL);  // not reaped yet, so the number is still its own
    for (const Deadline end = Deadline::after(kSubreaperPatience); !status_ && !end.expired(); reap()) {
      pollfd wait{signals_.get(), POLLIN, 0};
      ::poll(&wait, 1, end.poll_timeout_ms());
      drain_signals(signals_);
    }
  }

  // A child other than the subreaper has become ours because that has ended. With it, workers that
  // still worked are killed: that is no end of their own.
  void reap() {
    int status = 0;
    pid_t ended;
    while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended == subreaper_)
        status_ = status;
      else if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        tell(settings_.socket, {Event::Kind::left, ended, status, 0});
    }
  }

  void wait() {
    // Before the first poll, too: nothing else need ever happen that would wake this process.
    if (!patience_ && lease_.over()) patience_ = Deadline::after(kSubreaperPatience);
    // Not POLLIN: messages are the subreaper's.
    pollfd waits[] = {{patience_ ? -1 : settings_.socket, POLLRDHUP, 0},
                      {signals_.get(), POLLIN, 0},
                      {patience_ ? -1 : lease_.timer_fd(), POLLIN, 0},
                      {patience_ ? -1 : lease_.revoked_fd(), POLLIN, 0}};
    ::poll(waits, std::size(waits), (patience_ ? *patience_ : look_).poll_timeout_ms());
    drain_signals(signals_);
    if (!patience_ && (waits[0].revents != 0 || lease_.over()))
      patience_ = Deadline::after(kSubreaperPatience);
    if (!status_) continue_if_stopped(subreaper_);  // it has no business standing still
    reap();
    if (!patience_ && look_.expired()) look_at_subreaper();
  }

  // One that is held in the kernel or by a debugger costs nothing before what it started ends, of which
  // nobody else is told.
  void look_at_subreaper() {
    look_ = Deadline::after(kSubreaperLook);
    const auto subreaper = find_process(subreaper_);
    const bool waits = !subreaper || subreaper->state == 'S' || subreaper->state == 'R';
    looks_ = !waits && has_ended_child(subreaper_) ? looks_ + 1 : 0;
    if (looks_ < kLooks) return;
    tell(settings_.socket, {Event::Kind::held, -1, 0, 0});
    patience_ = Deadline::after(Duration::zero());
  }

  const GuardSettings& settings_;
  LeaseWatch lease_;
  UniqueFd signals_;
  pid_t subreaper_ = -1;
  std::optional<int> status_;         // of the subreaper that has ended
  std::optional<Deadline> patience_;  // with the subreaper, once it should end everything
  Deadline look_ = Deadline::after(kSubreaperLook);
  int looks_ = 0;  // in a row that have found the subreaper held and a child of its that has ended
};

}  // namespace

void run_guard(const GuardSettings& settings, const std::function<int()>& subreaper) {
  int code = 1;
  try {
    code = GuardProcess(settings, subreaper).run();
  } catch (const SystemError& error) {
    tell(settings.socket, {Event::Kind::unable, -1, error.error_number(), 0});
  } catch (const std::exception&) {
    // Without a subreaper there are no workers; the launcher sees the line end.
  }
  ::_exit(code);
}

}  // namespace dtrain::launcher
