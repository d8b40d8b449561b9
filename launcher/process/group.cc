// Sets a group up and runs its loop.
#include "launcher/process/group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/system/descendants.h"
#include "launcher/system/forked.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

// Whether a log file takes more.
constexpr std::chrono::milliseconds kLookAgain{20};
constexpr std::size_t kReadLimit = std::size_t{256} << 10;  // of one stream in one round

}  // namespace

GroupRun::GroupRun(const Plan& plan, const Attempt& attempt, const Environment& environment,
                   const GroupSettings& settings, Signals& signals, Console& console, UniqueFd store_socket,
                   const Clock& clock)
    : plan_(plan),
      attempt_(attempt),
      settings_(settings),
      signals_(signals),
      console_(console),
      clock_(clock),
      workers_(plan, attempt, settings, console, clock),
      supervisor_(static_cast<int>(plan.workers.size()), settings.policy),
      hang_(settings.hang, plan, environment, console, clock) {
  WorkerGroup group;
  group.inherited = signals.inherited();
  group.scratch_folders = settings.scratch_folders;
  group.title = settings.title;
  if (settings.link != nullptr) group.lease = settings.link->lease();
  group.workers = workers_.requests(environment, terminal_.has_keyboard());
  subreaper_ = start_subreaper(group);
  store_socket.reset();  // rank 0 has it; were ours open, its peers could connect to nobody once it has died
  workers_.started();
}

GroupResult GroupRun::run() {
  while (!subreaper_ended_ && !given_up_) {
    wait_for_news();
    take_signals();
    take_events();
    tell_failure();
    take_orders();
    keep_time();
  }
  workers_.finish_output([this] { return signals_.stop_waits(); });
  console_.settle_bars();
  terminal_.restore();
  GroupResult result;
  result.outcome = supervisor_.outcome();
  result.fenced = fenced_;
  result.subreaper_lost = subreaper_lost_;
  result.stuck = stuck_;
  if (result.outcome.first_failed)
    result.failure = workers_.failure_of(
        *result.outcome.first_failed,
        supervisor_.ends()[static_cast<std::size_t>(*result.outcome.first_failed)]->status);
  return result;
}

// Until the next thing to be done without news; empty when there is none.
std::optional<Duration> GroupRun::longest_wait() const {
  const bool held_back = std::any_of(workers_.begin(), workers_.end(), [](const Workers::Worker& worker) {
    return worker.out.held_back() || worker.err.held_back();
  });
  std::optional<TimePoint> first;
  const auto add = [&first](std::optional<TimePoint> deadline) {
    if (deadline) first = std::min(first.value_or(*deadline), *deadline);
  };
  if (held_back) add(clock_.now() + kLookAgain);
  for (const auto& deadline : {supervisor_.deadline(), supervisor_.return_due(), hang_.deadline()})
    add(deadline);
  for (const Workers::Worker& worker : workers_) {
    add(worker.out.deadline());
    add(worker.err.deadline());
  }
  return first ? std::optional(std::max(Duration::zero(), *first - clock_.now())) : std::nullopt;
}

// The one place where the launcher waits while workers run.
void GroupRun::wait_for_news() {
  std::vector<pollfd> waits{{subreaper_.socket.get(), POLLIN, 0},
                            {signals_.fd(), POLLIN, 0},
                            {settings_.link != nullptr ? settings_.link->fd() : -1, POLLIN, 0},
                            {hang_.fd(), POLLIN, 0}};
  for (const Sink* sink : {&console_.out(), &console_.err()}) {
    waits.push_back({sink->wants_to_write() ? sink->fd() : -1, POLLOUT, 0});
  }
  for (Workers::Worker& worker : workers_) {
    waits.push_back({worker.out.poll_fd(), POLLIN, 0});
    waits.push_back({worker.err.poll_fd(), POLLIN, 0});
  }
  timespec left{};
  const auto wait = longest_wait();
  if (wait) {
    left = {static_cast<time_t>(*wait / std::chrono::seconds(1)),
            static_cast<long>((*wait % std::chrono::seconds(1)).count())};
  }
  if (::ppoll(waits.data(), waits.size(), wait ? &left : nullptr, nullptr) < 0 && errno != EINTR)
    throw SystemError("ppoll in the launcher's loop", errno);
  continue_if_stopped(subreaper_.pid);
  if (waits[3].revents != 0) hang_.print();
  read_output(std::span(waits).last(2 * workers_.size()));
  console_.flush();
}

// `waits` are those of each worker's stdout and stderr.
void GroupRun::read_output(std::span<const pollfd> waits) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    bool any = false;
    if (waits[2 * i].revents != 0) any = workers_[i].out.read_some(kReadLimit);
    if (waits[2 * i + 1].revents != 0) any = workers_[i].err.read_some(kReadLimit) || any;
    if (any) hang_.on_output(static_cast<int>(i));
  }
}

void GroupRun::take_signals() {
  while (const auto signal = signals_.next()) {
    if (signals_.stops(*signal)) {
      take_stop_signal(*signal);
    } else if (*signal == SIGTSTP) {
      suspend();
    } else if (*signal == SIGUSR2 && settings_.link != nullptr && plan_.program.uses_dtrain) {
      // "Write a checkpoint and end": that concerns the workers of all nodes.
      pass_on(*signal);
      settings_.link->signalled(*signal);
    } else {
      command(Command::Kind::signal, *signal);
    }
  }
}

void GroupRun::take_stop_signal(int signal) {
  const Action action = supervisor_.on_signal(signal, clock_.now());
  if (action.kind == Action::Kind::none) return;
  if (action.kind == Action::Kind::signal) {
    console_.say("got " + signal_name(signal) + ": forwarded to the workers; a second one kills them");
    passed_on_.insert(signal);
  }
  carry_out(action);
  if (settings_.link != nullptr) settings_.link->signalled(signal);
}

// Once each: workers take a second signal for impatience.
void GroupRun::pass_on(int signal) {
  if (passed_on_.insert(signal).second) command(Command::Kind::signal, signal);
}

void GroupRun::take_orders() {
  if (settings_.link == nullptr) return;
  for (auto order = settings_.link->take(); order.kind != RoundLink::Order::Kind::none;
       order = settings_.link->take()) {
    ordered_ = true;
    take_order(order);
  }
}

void GroupRun::take_order(const RoundLink::Order& order) {
  switch (order.kind) {
    case RoundLink::Order::Kind::end:
      return carry_out(
          supervisor_.on_stop(clock_.now(), order.hurry ? Duration::zero() : settings_.policy.failure_grace));
    case RoundLink::Order::Kind::kill:
      return carry_out(supervisor_.on_kill(clock_.now()));
    case RoundLink::Order::Kind::signal:
      if (!signals_.stops(order.signal)) return pass_on(order.signal);
      if (passed_on_.insert(order.signal).second)
        carry_out(supervisor_.on_signal(order.signal, clock_.now()));
      return;
    case RoundLink::Order::Kind::none:
      return;
  }
}

// At once, before the others have ended: the other nodes wait for a cause.
void GroupRun::tell_failure() {
  if (settings_.link == nullptr || ordered_) return;
  const auto failed = supervisor_.root_cause();
  if (!failed || failed == told_failed_) return;
  told_failed_ = failed;
  Workers::Worker& worker = workers_[static_cast<std::size_t>(*failed)];
  worker.err.finish();  // its last words
  const WorkerEnd& end = *supervisor_.ends()[static_cast<std::size_t>(*failed)];
  settings_.link->failed(workers_.failure_of(*failed, end.status), supervisor_.is_consequence(*failed),
                         clock_.now() - end.at);
}

// Ctrl-Z: workers are in sessions of their own, so the terminal does not stop them.
void GroupRun::suspend() {
  if (!can_be_continued()) {
    console_.say("got SIGTSTP (Ctrl-Z): the job runs on, since no shell here could continue it");
    return;
  }
  command(Command::Kind::signal, SIGSTOP);
  console_.settle_bars();
  console_.flush();
  const auto workers_modes = terminal_.modes();
  terminal_.restore();
  stop_until_continued();
  terminal_.set_modes(workers_modes);
  command(Command::Kind::signal, SIGCONT);
}

void GroupRun::take_events() {
  Event event{};
  while (!subreaper_ended_) {
    const ssize_t got = ::recv(subreaper_.socket.get(), &event, sizeof event, 0);
    if (got == static_cast<ssize_t>(sizeof event)) {
      take_event(event);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      subreaper_has_ended();
    }
  }
}

void GroupRun::take_event(const Event& event) {
  if (event.kind == Event::Kind::fenced) {
    fenced_ = true;
    carry_out(supervisor_.on_kill(clock_.now()));
    return;
  }
  if (event.kind == Event::Kind::held) {
    console_.complain(
        "the subreaper process stands still, held in the kernel or by a debugger, and a process that it "
        "started "
        "has ended: it is killed, and with it what works on");
    return;
  }
  if (event.kind == Event::Kind::left) {
    const auto is_it = [&](const Workers::Worker& worker) { return worker.pid == event.worker; };
    const auto found = std::find_if(workers_.begin(), workers_.end(), is_it);
    if (found != workers_.end()) take_end(static_cast<int>(found - workers_.begin()), event);
    return;
  }
  if (event.kind == Event::Kind::stuck) {
    const auto process = find_process(static_cast<pid_t>(event.value));
    if (process) stuck_.push_back(text_of(*process));  // else it has ended after all
    if (event.value == 0) stuck_.push_back("a process that /proc does not show");
    return;
  }
  if (event.kind == Event::Kind::swept) {
    if (event.value > 0)
      console_.say("ended " + std::to_string(event.value) + " process" + (event.value == 1 ? "" : "es") +
                   " that workers had left behind");
    return;
  }
  if (event.kind == Event::Kind::leftovers) {
    const int count = static_cast<int>(event.value);
    const Action action = supervisor_.on_leftovers(count, clock_.now());
    if (action.kind == Action::Kind::await_leftovers)
      console_.say(leftovers_.text(count, settings_.policy.signal_grace));
    return carry_out(action);
  }
  Workers::Worker& worker = workers_[static_cast<std::size_t>(event.worker)];
  switch (event.kind) {
    case Event::Kind::started:
      worker.pid = static_cast<pid_t>(event.value);
      worker.gone = false;
      supervisor_.on_return(event.worker);
      hang_.on_start(event.worker, worker.pid);
      break;
    case Event::Kind::exec_failed:
      worker.exec_error = static_cast<int>(event.value);
      break;
    case Event::Kind::exited:
      take_end(event.worker, event);
      break;
    case Event::Kind::stopped:
    case Event::Kind::continued:
      tell_stop(event);
      break;
    case Event::Kind::emptied:
      worker.gone = true;
      break;
    case Event::Kind::leftover:
      leftovers_.note(static_cast<pid_t>(event.value),
                      name_of(plan_.workers[static_cast<std::size_t>(event.worker)]));
      break;
    default:  // concerns no one worker
      break;
  }
}

void GroupRun::take_end(int local_rank, const Event& event) {
  workers_[static_cast<std::size_t>(local_rank)].max_rss_kib = static_cast<long>(event.detail);
  hang_.on_exit(local_rank);
  carry_out(supervisor_.on_exit(local_rank, static_cast<int>(event.value), clock_.now(),
                                workers_.is_needed(local_rank)));
  tell_loss(local_rank);
}

// By whatever it was: until somebody continues it, all that wait for it wait too.
void GroupRun::tell_stop(const Event& event) {
  const std::string rank = name_of(plan_.workers[static_cast<std::size_t>(event.worker)]);
  const auto process = find_process(static_cast<pid_t>(event.value));
  const bool first = event.value == workers_[static_cast<std::size_t>(event.worker)].pid;
  const std::string who = first     ? fmt::format("{} (pid {})", rank, event.value)
                          : process ? fmt::format("process {} ({}) of {}", event.value, process->name, rank)
                                    : fmt::format("process {} of {}", event.value, rank);
  if (event.kind == Event::Kind::continued) {
    if (process && process->state != 'Z') console_.say(who + " has been continued");
    return;
  }
  const int signal = static_cast<int>(event.detail);
  const bool terminal = signal == SIGTTIN || signal == SIGTTOU;
  console_.complain(
      fmt::format("{} has been stopped{}{}: it does nothing until it is continued (kill -CONT {})", who,
                  signal == 0 ? "" : " by " + signal_name(signal),
                  terminal ? ", for using a terminal in the background" : "", event.value));
}

// Of a worker that the others can do without.
void GroupRun::tell_loss(int local_rank) {
  if (!supervisor_.is_lost(local_rank)) return;
  const int code = exit_code_of(supervisor_.ends()[static_cast<std::size_t>(local_rank)]->status);
  console_.complain(name_of(plan_.workers[static_cast<std::size_t>(local_rank)]) + " was killed by " +
                    signal_name(code - 128) + "; the others go on as long as they can");
}

void GroupRun::keep_time() {
  const TimePoint now = clock_.now();
  const bool due = supervisor_.deadline() && now >= *supervisor_.deadline();
  if (due) carry_out(supervisor_.on_time(now, workers_.saving_rank().has_value()));
  hang_.keep_time();
  for (Workers::Worker& worker : workers_) {
    worker.out.keep_time();
    worker.err.keep_time();
  }
  while (const auto worker = supervisor_.take_return(now)) {
    if (plan_.workers[static_cast<std::size_t>(*worker)].rank == 0) continue;
    console_.say(name_of(plan_.workers[static_cast<std::size_t>(*worker)]) + " is started again");
    command(Command::Kind::start_again, *worker);
  }
}

void GroupRun::carry_out(const Action& action) {
  if (action.kind == Action::Kind::await_saving)
    console_.say("rank " + std::to_string(workers_.saving_rank().value_or(0)) +
                 " is writing a checkpoint: it gets up to " + in_seconds(settings_.policy.saving_grace) +
                 " s more (--saving-timeout)");
  if (action.kind == Action::Kind::signal) command(Command::Kind::signal, action.signal);
  if (action.kind == Action::Kind::kill_all) command(Command::Kind::kill_all, SIGKILL);
  if (action.kind == Action::Kind::insist) ::shutdown(subreaper_.socket.get(), SHUT_WR);
  if (action.kind == Action::Kind::give_up) give_up();
}

// A subreaper that is gone is noticed by its socket's end.
void GroupRun::command(Command::Kind kind, int signal) {
  const Command message{kind, signal};
  ::send(subreaper_.socket.get(), &message, sizeof message, MSG_NOSIGNAL);
}

void GroupRun::subreaper_has_ended() {
  subreaper_ended_ = true;
  // Had it ended in order, it would have told the workers' ends. What was left, the guard has ended.
  subreaper_lost_ = supervisor_.running() > 0;
  reap_soon(subreaper_.pid);
}

// SIGKILL has not ended the workers; nor can anything else. Subreaper and guard try on while we go.
void GroupRun::give_up() {
  given_up_ = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (supervisor_.ends()[i]) continue;
    const auto process = find_process(workers_[i].pid);
    stuck_.push_back(name_of(plan_.workers[i]) + ", " +
                     (process ? text_of(*process) : "process " + std::to_string(workers_[i].pid)));
  }
}

}  // namespace dtrain::launcher
