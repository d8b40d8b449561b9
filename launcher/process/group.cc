// Sets a group up and runs its loop.
#include "launcher/process/group.h"

#include <fcntl.h>
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
      oom_before_(read_oom_kills()),
      supervisor_(static_cast<int>(plan.workers.size()), settings.policy),
      hang_(settings.hang, plan, environment, console, clock) {
  const UniqueFd null(
      static_cast<int>(check(Sys{::open("/dev/null", O_RDWR | O_CLOEXEC)}, "open /dev/null")));
  WorkerGroup group;
  group.inherited = signals.inherited();
  group.scratch_folders = settings.scratch_folders;
  group.title = settings.title;
  if (settings.link != nullptr) group.lease = settings.link->lease();
  workers_.reserve(plan.workers.size());
  for (const WorkerPlan& worker : plan.workers) {
    workers_.push_back(open_worker(worker));
    group.workers.push_back(request_for(worker, environment, null.get()));
  }
  keeper_ = start_keeper(group);
  store_socket.reset();  // rank 0 has it; were ours open, its peers could connect to nobody once it has died
  for (Worker& worker : workers_) {
    worker.out.started();
    worker.err.started();
  }
}

bool GroupRun::shows_progress(const WorkerPlan& worker) const {
  return worker.local_rank == 0 && plan_.share.group_rank == 0 && console_.err().terminal() &&
         worker.err.console && worker.prefix.empty();
}

bool GroupRun::inherits_stdout(const WorkerPlan& worker) const {
  // The built-in program shows progress on stderr, which the launcher has to keep apart from its stdout.
  return plan_.nproc == 1 && !plan_.program.uses_dtrain && console_.out().terminal() && worker.out.console &&
         worker.out.file.empty() && worker.prefix.empty();
}

GroupRun::Worker GroupRun::open_worker(const WorkerPlan& worker) {
  CaptureOptions out;
  out.passthrough = settings_.passthrough;
  out.alone = plan_.workers.size() == 1;
  out.log_folder = settings_.log_folder;
  out.name = name_of(worker) + ": ";
  out.order = 2 * worker.local_rank;
  CaptureOptions err = out;
  out.inherit = inherits_stdout(worker);
  err.to_err = true;
  err.progress = shows_progress(worker);
  ++err.order;
  return {Capture(worker.out, worker.prefix, out, console_, clock_),
          Capture(worker.err, worker.prefix, err, console_, clock_)};
}

Environment GroupRun::terminal_environment(const WorkerPlan& worker) const {
  if (!shows_progress(worker)) return {};
  return {{"DTRAIN_STDERR_TTY", "1"}, {"DTRAIN_COLUMNS", std::to_string(console_.columns())}};
}

SpawnRequest GroupRun::request_for(const WorkerPlan& worker, const Environment& environment,
                                   int null_fd) const {
  const Environment attempt = attempt_environment(plan_, worker, attempt_);
  const Environment terminal = terminal_environment(worker);
  const Worker& streams = workers_[static_cast<std::size_t>(worker.local_rank)];
  SpawnRequest request;
  request.worker = worker.local_rank;
  request.path = plan_.program.path;
  request.argv = worker.argv;
  request.environment =
      merged_environment(environment, plan_.removed_variables, {&worker.environment, &attempt, &terminal});
  const bool reads_input = worker.rank == 0 && (::isatty(0) == 0 || terminal_.has_keyboard());
  request.in = reads_input ? -1 : null_fd;
  request.out = streams.out.worker_end();
  request.err = streams.err.worker_end();
  if (plan_.program.uses_dtrain) {
    if (worker.rank == 0 && attempt_.store_fd >= 0) request.kept_fds.push_back(attempt_.store_fd);
    if (attempt_.lease_fd >= 0) request.kept_fds.push_back(attempt_.lease_fd);
  }
  // Rank 0 serves the store, which is lost with it.
  request.may_return = settings_.policy.servers > 0 && settings_.policy.returns > 0 && worker.rank != 0;
  request.cpus = worker.cpus;
  return request;
}

GroupResult GroupRun::run() {
  while (!keeper_ended_ && !given_up_) {
    wait_for_news();
    take_signals();
    take_events();
    tell_failure();
    take_orders();
    keep_time();
  }
  for (Worker& worker : workers_) {
    worker.out.finish();
    worker.err.finish();
  }
  settle_files();
  console_.settle_bars();
  terminal_.restore();
  GroupResult result;
  result.outcome = supervisor_.outcome();
  result.fenced = fenced_;
  result.keeper_lost = keeper_lost_;
  result.stuck = stuck_;
  if (result.outcome.first_failed)
    result.failure = failure_of(*result.outcome.first_failed, read_oom_kills());
  return result;
}

// Log files get a little time for their last bytes, unless somebody is in a hurry.
void GroupRun::settle_files() {
  const Deadline settled = Deadline::after(LogFile::kStall);
  for (Worker& worker : workers_) {
    for (Capture* stream : {&worker.out, &worker.err}) {
      while (!stream->settle_file(Deadline::after(kLookAgain)) && !settled.expired() &&
             !signals_.stop_waits()) {
      }
      stream->give_up_file();
    }
  }
}

// Until the next thing to be done without news; empty when there is none.
std::optional<Duration> GroupRun::longest_wait() const {
  const bool held_back = std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return worker.out.held_back() || worker.err.held_back();
  });
  std::optional<TimePoint> first;
  const auto add = [&first](std::optional<TimePoint> deadline) {
    if (deadline) first = std::min(first.value_or(*deadline), *deadline);
  };
  if (held_back) add(clock_.now() + kLookAgain);
  for (const auto& deadline : {supervisor_.deadline(), supervisor_.return_due(), hang_.deadline()})
    add(deadline);
  for (const Worker& worker : workers_) {
    add(worker.out.deadline());
    add(worker.err.deadline());
  }
  return first ? std::optional(std::max(Duration::zero(), *first - clock_.now())) : std::nullopt;
}

// The one place where the launcher waits while workers run.
void GroupRun::wait_for_news() {
  std::vector<pollfd> waits{{keeper_.socket.get(), POLLIN, 0},
                            {signals_.fd(), POLLIN, 0},
                            {settings_.link != nullptr ? settings_.link->fd() : -1, POLLIN, 0},
                            {hang_.fd(), POLLIN, 0}};
  for (const Sink* sink : {&console_.out(), &console_.err()}) {
    waits.push_back({sink->wants_to_write() ? sink->fd() : -1, POLLOUT, 0});
  }
  for (Worker& worker : workers_) {
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
  continue_if_stopped(keeper_.pid);
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
  Worker& worker = workers_[static_cast<std::size_t>(*failed)];
  worker.err.finish();  // its last words
  const WorkerEnd& end = *supervisor_.ends()[static_cast<std::size_t>(*failed)];
  settings_.link->failed(failure_of(*failed, read_oom_kills()), supervisor_.is_consequence(*failed),
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
  while (!keeper_ended_) {
    const ssize_t got = ::recv(keeper_.socket.get(), &event, sizeof event, 0);
    if (got == static_cast<ssize_t>(sizeof event)) {
      take_event(event);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      keeper_has_ended();
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
        "the keeper process stands still, held in the kernel or by a debugger, and a process that it started "
        "has ended: it is killed, and with it what works on");
    return;
  }
  if (event.kind == Event::Kind::left) {
    const auto is_it = [&](const Worker& worker) { return worker.pid == event.worker; };
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
  Worker& worker = workers_[static_cast<std::size_t>(event.worker)];
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
      tell_stop(event.worker, static_cast<int>(event.value));
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
  workers_[static_cast<std::size_t>(local_rank)].max_rss_kib = static_cast<long>(event.max_rss_kib);
  hang_.on_exit(local_rank);
  carry_out(
      supervisor_.on_exit(local_rank, static_cast<int>(event.value), clock_.now(), is_needed(local_rank)));
  tell_loss(local_rank);
}

// By whatever it was: until somebody continues it, all that wait for it wait too.
void GroupRun::tell_stop(int local_rank, int signal) {
  const std::string pid = std::to_string(workers_[static_cast<std::size_t>(local_rank)].pid);
  const std::string worker =
      name_of(plan_.workers[static_cast<std::size_t>(local_rank)]) + " (pid " + pid + ")";
  if (signal == 0) return console_.say(worker + " has been continued");
  const bool terminal = signal == SIGTTIN || signal == SIGTTOU;
  console_.complain(worker + " has been stopped by " + signal_name(signal) +
                    (terminal ? ", for using a terminal in the background" : "") +
                    ": it does nothing until it is continued (kill -CONT " + pid + ")");
}

// Rank 0 is where the others meet, and keeps the run's records; and until a worker has met the others, they
// wait for it.
bool GroupRun::is_needed(int local_rank) const {
  const WorkerPlan& worker = plan_.workers[static_cast<std::size_t>(local_rank)];
  return worker.rank == 0 || (!attempt_.error_folder.empty() &&
                              ::access(met_file_of(attempt_.error_folder, worker).c_str(), F_OK) != 0);
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
  if (due) carry_out(supervisor_.on_time(now, saving_rank().has_value()));
  hang_.keep_time();
  for (Worker& worker : workers_) {
    worker.out.keep_time();
    worker.err.keep_time();
  }
  while (const auto worker = supervisor_.take_return(now)) {
    if (plan_.workers[static_cast<std::size_t>(*worker)].rank == 0) continue;
    console_.say(name_of(plan_.workers[static_cast<std::size_t>(*worker)]) + " is started again");
    command(Command::Kind::start_again, *worker);
  }
}

// Whose file says that it is writing a checkpoint.
std::optional<int> GroupRun::saving_rank() const {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const WorkerPlan& worker = plan_.workers[i];
    if (!attempt_.error_folder.empty() && !workers_[i].gone &&
        ::access(saving_file_of(attempt_.error_folder, worker).c_str(), F_OK) == 0)
      return worker.rank;
  }
  return std::nullopt;
}

void GroupRun::carry_out(const Action& action) {
  if (action.kind == Action::Kind::await_saving)
    console_.say("rank " + std::to_string(saving_rank().value_or(0)) +
                 " is writing a checkpoint: it gets up to " + in_seconds(settings_.policy.saving_grace) +
                 " s more (--saving-timeout)");
  if (action.kind == Action::Kind::signal) command(Command::Kind::signal, action.signal);
  if (action.kind == Action::Kind::kill_all) command(Command::Kind::kill_all, SIGKILL);
  if (action.kind == Action::Kind::insist) ::shutdown(keeper_.socket.get(), SHUT_WR);
  if (action.kind == Action::Kind::give_up) give_up();
}

// A keeper that is gone is noticed by its socket's end.
void GroupRun::command(Command::Kind kind, int signal) {
  const Command message{kind, signal};
  ::send(keeper_.socket.get(), &message, sizeof message, MSG_NOSIGNAL);
}

void GroupRun::keeper_has_ended() {
  keeper_ended_ = true;
  // Had it ended in order, it would have told the workers' ends. What was left, the guard has ended.
  keeper_lost_ = supervisor_.running() > 0;
  reap_soon(keeper_.pid);
}

// SIGKILL has not ended the workers; nor can anything else. Keeper and guard try on while we go.
void GroupRun::give_up() {
  given_up_ = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (supervisor_.ends()[i]) continue;
    const auto process = find_process(workers_[i].pid);
    stuck_.push_back(name_of(plan_.workers[i]) + ", " +
                     (process ? text_of(*process) : "process " + std::to_string(workers_[i].pid)));
  }
}

WorkerFailure GroupRun::failure_of(int local_rank, const OomKills& now) const {
  const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  const WorkerPlan& plan = plan_.workers[static_cast<std::size_t>(local_rank)];
  WorkerFailure failure;
  failure.rank = plan.rank;
  failure.local_rank = local_rank;
  failure.server = plan.server;
  failure.host = plan_.host;
  if (plan_.share.nnodes > 1 || settings_.link != nullptr) failure.node_rank = plan_.share.node_rank;
  failure.pid = worker.pid;
  failure.status = supervisor_.ends()[static_cast<std::size_t>(local_rank)]->status;
  failure.exec_error = worker.exec_error;
  failure.program = plan_.program.path;
  failure.out_of_memory = exit_code_of(failure.status) == 128 + SIGKILL && oom_since(oom_before_, now);
  failure.max_rss_kib = worker.max_rss_kib;
  if (!attempt_.error_folder.empty())
    failure.error_text = read_error_file(error_file_of(attempt_.error_folder, plan));
  failure.last_lines = worker.err.last_lines();
  failure.log_file = worker.err.file_path();
  if (!plan_.program.uses_dtrain && !plan.environment.contains("TORCHELASTIC_USE_AGENT_STORE"))
    failure.master = plan_.master_addr + ":" + std::to_string(attempt_.master_port);
  return failure;
}

}  // namespace dtrain::launcher
