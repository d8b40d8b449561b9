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
// Whether all workers have met.
constexpr std::chrono::milliseconds kFirstLook{5}, kLastLook{250};
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
      hang_(settings.hang, plan, environment, console, clock),
      began_(clock.now()) {
  if (settings.events->on() && settings.status != nullptr) ready_look_ = straggler_look_ = began_;
  WorkerGroup group;
  group.inherited = signals.inherited();
  group.scratch_folders = settings.scratch_folders;
  group.title = settings.title;
  if (settings.others != nullptr) group.lease = settings.others->lease();
  group.workers = workers_.requests(environment, terminal_.has_keyboard());
  subreaper_ = start_subreaper(group);
  store_socket.reset();  // rank 0 has it; were ours open, its peers could connect to nobody once it has died
  workers_.started();
  settings.control->run_workers(*this);
}

GroupResult GroupRun::run() {
  while (!subreaper_ended_ && !given_up_) {
    wait_for_news();
    take_signals();
    take_events();
    tell_failure();
    take_commands();
    keep_time();
  }
  workers_.finish_output([this] { return signals_.stop_waits(); });
  console_.settle_bars();
  terminal_.restore();
  GroupResult result = supervisor_.result();
  result.fenced = fenced_;
  result.subreaper_lost = subreaper_lost_;
  result.subreaper_error = subreaper_error_;
  result.stuck = stuck_;
  if (result.first_failed) result.failure = failure_of(*result.first_failed);
  return result;
}

Failure GroupRun::failure_of(int local_rank) const {
  return workers_.failure_of(local_rank, supervisor_.ends()[static_cast<std::size_t>(local_rank)]->status,
                             supervisor_.is_consequence(local_rank));
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
  for (const auto& deadline :
       {supervisor_.deadline(), supervisor_.return_due(), hang_.deadline(), ready_look_, straggler_look_})
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
                            {settings_.others != nullptr ? settings_.others->fd() : -1, POLLIN, 0},
                            {hang_.fd(), POLLIN, 0},
                            {settings_.control->fd(), POLLIN, 0}};
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
  if (waits[4].revents != 0) settings_.control->serve();
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
    } else if (*signal == SIGUSR2 && settings_.others != nullptr && plan_.program.uses_dtrain) {
      // "Write a checkpoint and end": that concerns the workers of all nodes.
      pass_on(*signal);
      settings_.others->signalled(*signal);
    } else {
      send(Command::Kind::signal, *signal);
    }
  }
}

void GroupRun::take_stop_signal(int signal) {
  const Command command = supervisor_.on_signal(signal, clock_.now());
  if (command.kind == Command::Kind::none) return;
  if (command.kind == Command::Kind::signal) {
    console_.say("got " + signal_name(signal) + ": forwarded to the workers; a second one kills them");
    passed_on_.insert(signal);
  }
  console_.hurry();
  settings_.events->signal(signal);
  carry_out(command);
  if (settings_.others != nullptr) settings_.others->signalled(signal);
}

// Once each: workers take a second signal for impatience.
void GroupRun::pass_on(int signal) {
  if (passed_on_.insert(signal).second) send(Command::Kind::signal, signal);
}

void GroupRun::take_commands() {
  if (settings_.others == nullptr) return;
  for (Command command = settings_.others->take(); command.kind != Command::Kind::none;
       command = settings_.others->take()) {
    ended_by_others_ = true;
    obey(command);
  }
}

void GroupRun::obey(const Command& command) {
  const TimePoint now = clock_.now();
  if (command.kind == Command::Kind::end)
    return carry_out(
        supervisor_.on_stop(now, command.value == 1 ? Duration::zero() : settings_.policy.failure_grace));
  if (command.kind == Command::Kind::kill_all) return carry_out(supervisor_.on_kill(now));
  if (!signals_.stops(command.value)) return pass_on(command.value);
  if (passed_on_.insert(command.value).second) carry_out(supervisor_.on_signal(command.value, now));
}

// At once, before the others have ended: the other nodes wait for a cause.
void GroupRun::tell_failure() {
  if (settings_.others == nullptr || ended_by_others_) return;
  const auto failed = supervisor_.root_cause();
  if (!failed || failed == told_failed_) return;
  told_failed_ = failed;
  Workers::Worker& worker = workers_[static_cast<std::size_t>(*failed)];
  worker.err.finish();  // its last words
  const WorkerEnd& end = *supervisor_.ends()[static_cast<std::size_t>(*failed)];
  settings_.others->failed(failure_of(*failed), clock_.now() - end.at);
}

// Ctrl-Z: workers are in sessions of their own, so the terminal does not stop them.
void GroupRun::suspend() {
  if (!can_be_continued()) {
    console_.say("got SIGTSTP (Ctrl-Z): the job keeps running, since no shell here could resume it");
    return;
  }
  send(Command::Kind::signal, SIGSTOP);
  console_.settle_bars();
  console_.flush();
  const auto workers_modes = terminal_.modes();
  terminal_.restore();
  stop_until_continued();
  terminal_.set_modes(workers_modes);
  send(Command::Kind::signal, SIGCONT);
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
  if (event.worker < 0 || event.kind == Event::Kind::left) return take_event_of_group(event);
  Workers::Worker& worker = workers_[static_cast<std::size_t>(event.worker)];
  switch (event.kind) {
    case Event::Kind::started:
      worker.pid = static_cast<pid_t>(event.value);
      worker.gone = false;
      supervisor_.on_return(event.worker);
      settings_.events->worker_start(plan_.workers[static_cast<std::size_t>(event.worker)], worker.pid);
      return hang_.on_start(event.worker, worker.pid);
    case Event::Kind::exec_failed:
      worker.exec_error = static_cast<int>(event.value);
      return;
    case Event::Kind::exited:
      return take_end(event.worker, event);
    case Event::Kind::exited_alone:
      worker.gone = true;
      return take_end(event.worker, event);
    case Event::Kind::stopped:
    case Event::Kind::continued:
      return tell_stop(event);
    case Event::Kind::emptied:
      worker.gone = true;
      return;
    case Event::Kind::leftover:
      return leftovers_.note(static_cast<pid_t>(event.value),
                             name_of(plan_.workers[static_cast<std::size_t>(event.worker)]));
    default:
      return;
  }
}

void GroupRun::take_event_of_group(const Event& event) {
  switch (event.kind) {
    case Event::Kind::fenced:
      fenced_ = true;
      return carry_out(supervisor_.on_kill(clock_.now()));
    case Event::Kind::unable:
      subreaper_error_ = static_cast<int>(event.value);
      return;
    case Event::Kind::held:
      return console_.complain(
          "the subreaper process is stuck, in the kernel or in a debugger, and a process that it started has "
          "ended: killing it and all processes that still run");
    case Event::Kind::left: {
      const auto is_it = [&](const Workers::Worker& worker) { return worker.pid == event.worker; };
      const auto found = std::find_if(workers_.begin(), workers_.end(), is_it);
      if (found != workers_.end()) take_end(static_cast<int>(found - workers_.begin()), event);
      return;
    }
    case Event::Kind::stuck: {
      const auto process = find_process(static_cast<pid_t>(event.value));
      if (process) stuck_.push_back(text_of(*process));  // else it has ended after all
      if (event.value == 0) stuck_.push_back("a process that /proc does not show");
      return;
    }
    case Event::Kind::swept:
      if (event.value == 0) return;
      return console_.say(fmt::format("ended {} process{} that workers had left behind", event.value,
                                      event.value == 1 ? "" : "es"));
    case Event::Kind::leftovers:
      return carry_out(supervisor_.on_leftovers(static_cast<int>(event.value), clock_.now()),
                       static_cast<int>(event.value));
    default:
      return;
  }
}

void GroupRun::take_end(int local_rank, const Event& event) {
  Workers::Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  worker.max_rss_kib = static_cast<long>(event.detail);
  hang_.on_exit(local_rank);
  const std::string& log = worker.err.file_path().empty() ? worker.out.file_path() : worker.err.file_path();
  settings_.events->worker_exit(plan_.workers[static_cast<std::size_t>(local_rank)], worker.pid,
                                static_cast<int>(event.value), worker.max_rss_kib, log);
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
                    signal_name(code - 128) + "; the others continue as long as they can");
}

// A worker that has met the others says so in memory, where only a look finds it: at once, then less and
// less often.
void GroupRun::look_whether_ready() {
  const TimePoint now = clock_.now();
  if (!ready_look_ || now < *ready_look_) return;
  const auto has_met = [&](int local_rank) {
    const auto status = settings_.status->slot(local_rank).read();
    return status && status->state != WorkerState::starting;
  };
  for (int local_rank = 0; local_rank < static_cast<int>(workers_.size()); ++local_rank) {
    if (has_met(local_rank)) continue;
    ready_look_ = now + std::clamp<Duration>((now - began_) / 8, kFirstLook, kLastLook);
    return;
  }
  ready_look_.reset();
  settings_.events->ready(now - began_);
}

void GroupRun::keep_time() {
  const TimePoint now = clock_.now();
  look_whether_ready();
  look_for_stragglers();
  if (const auto news = settings_.events->take_news()) console_.complain(*news);
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
    send(Command::Kind::start_again, *worker);
  }
}

// `count`: of processes that were left, for people.
void GroupRun::carry_out(const Command& command, int count) {
  switch (command.kind) {
    case Command::Kind::await_saving:
      return console_.say(
          fmt::format("rank {} is writing a checkpoint: it gets up to {} s more (--saving-timeout)",
                      workers_.saving_rank().value_or(0), in_seconds(settings_.policy.saving_grace)));
    case Command::Kind::await_leftovers:
      return console_.say(leftovers_.text(count, settings_.policy.signal_grace));
    case Command::Kind::signal:
    case Command::Kind::kill_all:
      return send(command.kind, command.value);
    case Command::Kind::replace_subreaper:  // the guard takes this for the launcher's end
      ::shutdown(subreaper_.socket.get(), SHUT_WR);
      return;
    case Command::Kind::give_up:
      return give_up();
    default:
      return;
  }
}

// A subreaper that is gone is noticed by its socket's end.
void GroupRun::send(Command::Kind kind, int value) {
  const Command message{kind, value};
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
