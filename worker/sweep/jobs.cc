#include "worker/sweep/jobs.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"

namespace dtrain::sweep {
namespace {

constexpr int kCannotExecute = 127;
constexpr std::size_t kMostOutput = std::size_t{1} << 20;

/// Everything a child needs, laid out before there is one.
struct Prepared {
  std::vector<std::string> variables;
  std::vector<char*> argv, environment;
  cpu_set_t cores{};
  bool bound = false;
  pid_t parent = ::getpid();

  explicit Prepared(const Job& job) {
    for (const std::string& word : job.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    for (const auto& [name, value] : job.environment) variables.push_back(name + "=" + value);
    for (const std::string& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
    environment.push_back(nullptr);
    CPU_ZERO(&cores);
    for (const int core : job.place.cores) {
      if (core < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(core), &cores);
    }
    bound = !job.place.cores.empty();
  }
};

// In the child.
[[noreturn]] void become(const Prepared& prepared, const sigset_t& mask, int output) {
  ::setpgid(0, 0);  // a Ctrl-C on the terminal is the sweep's to handle
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(kCannotExecute);  // the sweep was gone before the line above
  if (prepared.bound) ::sched_setaffinity(0, sizeof prepared.cores, &prepared.cores);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvpe(prepared.argv[0], prepared.argv.data(), prepared.environment.data());
  const char* reason = ::strerror(errno);
  for (const char* part : {static_cast<const char*>(prepared.argv[0]), ": ", reason, "\n"}) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, part, std::strlen(part));
  }
  ::_exit(kCannotExecute);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

pid_t spawn(const Job& job, const sigset_t& mask, int output) {
  const Prepared prepared(job);
  const pid_t child = ::fork();
  if (child == 0) become(prepared, mask, output);
  return static_cast<pid_t>(check(Sys{child}, "fork for " + job.command.front()));
}

}  // namespace

Jobs::Jobs() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&handled, signal);  // nohup stays nohup
  }
  sigaddset(&handled, SIGCHLD);
  check(Sys{::sigprocmask(SIG_BLOCK, &handled, &mask_before_)}, "sigprocmask");
  ::signal(SIGCHLD, SIG_DFL);  // our parent may have had it ignored: then nothing could be waited for
  signals_.reset(
      static_cast<int>(check(Sys{::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)}, "signalfd")));
}

Jobs::~Jobs() {
  signal_all(SIGKILL);
  for (const auto& [pid, id] : pids_) ::waitpid(pid, nullptr, 0);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Jobs::start(int id, const Job& job) {
  const UniqueFd log(
      static_cast<int>(check(Sys{::open(job.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)},
                             "open " + job.log.string())));
  pids_[spawn(job, mask_before_, log.get())] = id;
}

void Jobs::wait(int timeout_ms) {
  pollfd ready{signals_.get(), POLLIN, 0};
  ::poll(&ready, 1, timeout_ms);
}

std::optional<JobEnd> Jobs::take_end() {
  for (const auto& [pid, id] : pids_) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) != pid) continue;
    const JobEnd end{id, status};
    pids_.erase(pid);
    return end;
  }
  return std::nullopt;
}

std::optional<int> Jobs::take_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

void Jobs::signal_all(int signal) noexcept {
  for (const auto& [pid, id] : pids_) ::kill(pid, signal);  // not reaped yet, so the number is still its own
}

Finished run_to_end(const std::vector<std::string>& command, const Environment& environment) {
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe for " + command.front());
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  const pid_t child = spawn({command, environment, {}, {}}, mask, in.get());
  in.reset();
  Finished finished;
  char piece[4096];
  for (ssize_t got; (got = ::read(out.get(), piece, sizeof piece)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0 && finished.output.size() < kMostOutput)
      finished.output.append(piece, static_cast<std::size_t>(got));
  }
  check(Sys{::waitpid(child, &finished.status, 0)}, "wait for " + command.front());
  return finished;
}

}  // namespace dtrain::sweep
