// One child, one poll loop over stdin and signals.
#include "launcher/hosts/proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

#include "launcher/hosts/launch_request.h"
#include "launcher/subreaper/spawn.h"
#include "launcher/system/forked.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kMaxRequestBytes = std::size_t{8} << 20;
constexpr std::string_view kSignal = "signal ";
constexpr int kKilled = 128 + SIGKILL;

// sshd's "client-address port server-address port".
ProxyGreeting greeting_of(const std::string& version) {
  ProxyGreeting greeting{version, "", ""};
  std::istringstream words(variable_or(current_environment(), "SSH_CONNECTION", ""));
  std::string port;
  words >> greeting.reached_from >> port >> greeting.reached_at;
  return greeting;
}

class Proxy {
 public:
  Proxy(std::string mark, std::string version, const std::string& own_folder)
      : mark_(std::move(mark)), version_(std::move(version)), launcher_path_(own_folder + "/dtrain-launch") {
    check(Sys{::sigprocmask(SIG_SETMASK, nullptr, &inherited_.mask)}, "sigprocmask");
    check(Sys{::getrlimit(RLIMIT_NOFILE, &inherited_.open_files)}, "getrlimit RLIMIT_NOFILE");
    signals_ = block_signals_but_watch({SIGCHLD, SIGTERM, SIGINT, SIGHUP});
  }

  int run() {
    say(greeting_line(mark_, greeting_of(version_)));
    while (!exit_code_) {
      pollfd waits[] = {{open_ ? STDIN_FILENO : -1, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
      ::poll(waits, 2, -1);
      if (waits[0].revents != 0) read_stdin();
      if (waits[1].revents != 0) take_signals();
    }
    return *exit_code_;
  }

 private:
  // In one call, so that nobody else's bytes come in between.
  static void say(std::string line) {
    line += '\n';
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }

  void read_stdin() {
    std::array<char, 65536> chunk;
    const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0 || pending_.size() > kMaxRequestBytes) return close();
    pending_.append(chunk.data(), static_cast<std::size_t>(got));
    for (std::size_t end; !exit_code_ && (end = pending_.find('\n')) != std::string::npos;) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      obey(line);
    }
  }

  // The launcher that the user has started is gone.
  void close() {
    open_ = false;
    if (child_ <= 0)
      exit_code_ = kKilled;
    else
      ::kill(child_, SIGKILL);
  }

  void obey(const std::string& line) {
    if (child_ <= 0) return start(parse_request(line));
    const auto number = line.starts_with(kSignal) ? parse_integer(line.substr(kSignal.size())) : std::nullopt;
    if (number && *number > 0 && *number < NSIG) ::kill(child_, static_cast<int>(*number));
  }

  void start(const LaunchRequest& request) {
    if (::chdir(request.folder.c_str()) != 0) {
      say(failure_line(mark_, "the folder " + request.folder + " cannot be entered: " + std::strerror(errno) +
                                  "; start the job in a folder that all hosts have"));
      exit_code_ = static_cast<int>(ExitCode::usage);
      return;
    }
    SpawnRequest launcher;
    launcher.path = launcher_path_;
    launcher.argv = {launcher_path_};
    launcher.argv.insert(launcher.argv.end(), request.arguments.begin(), request.arguments.end());
    launcher.environment = merged_environment(
        current_environment(), {"DTRAIN_HOSTS", "DTRAIN_SSH", "DTRAIN_EXPORT", "DTRAIN_LAUNCH_CONFIG"},
        {&request.environment});
    const UniqueFd nothing(
        static_cast<int>(check(Sys{::open("/dev/null", O_RDONLY | O_CLOEXEC)}, "open /dev/null")));
    launcher.in = nothing.get();
    child_ = spawn(launcher, inherited_, -1);
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      if (child_ <= 0) exit_code_ = 128 + static_cast<int>(info.ssi_signo);
      if (child_ > 0) ::kill(child_, static_cast<int>(info.ssi_signo));
    }
    int status = 0;
    if (child_ <= 0 || ::waitpid(child_, &status, WNOHANG) != child_) return;
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (!open_) return;  // nobody is there to be told, or it is this that has killed it
    say(WIFSIGNALED(status) ? killed_line(mark_, WTERMSIG(status)) : exit_line(mark_, *exit_code_));
  }

  std::string mark_, version_, launcher_path_, pending_;
  Inherited inherited_;
  UniqueFd signals_;
  bool open_ = true;
  pid_t child_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace

int run_proxy(const std::string& mark, const std::string& version, const std::string& own_folder) {
  return Proxy(mark, version, own_folder).run();
}

}  // namespace dtrain::launcher
