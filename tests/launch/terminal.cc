// A pseudo-terminal's other end.
#include "tests/launch/terminal.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>

#include "runtime/base/check.h"
#include "tests/launch/running.h"
#include "tests/support/process.h"

namespace dtrain::test {

OnTerminal::OnTerminal(const std::vector<std::string>& argv,
                       const std::map<std::string, std::string>& environment, TerminalSize size) {
  const winsize window{size.rows, size.columns, 0, 0};
  int master = -1;
  pid_ = static_cast<pid_t>(check(Sys{::forkpty(&master, nullptr, nullptr, &window)}, "forkpty"));
  if (pid_ == 0) {
    default_signals();
    ::unsetenv(
        "NO_COLOR");  // the person who runs the tests may not want colour; each test here says what it wants
    ::setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    ::_exit(127);
  }
  master_.reset(master);
  check(Sys{::fcntl(master, F_SETFL, O_NONBLOCK)}, "fcntl O_NONBLOCK");
}

OnTerminal::~OnTerminal() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void OnTerminal::type(const std::string& keys) {
  check(Sys{::write(master_.get(), keys.data(), keys.size())}, "write to a terminal");
}

const std::string& OnTerminal::shown() {
  char chunk[4096];
  ssize_t got;
  while ((got = ::read(master_.get(), chunk, sizeof chunk)) > 0)
    shown_.append(chunk, static_cast<std::size_t>(got));
  return shown_;
}

bool OnTerminal::shows(const std::string& text, int times, std::chrono::milliseconds timeout) {
  return eventually(
      [&] {
        int seen = 0;
        const std::string& all = shown();
        for (std::size_t at = 0; (at = all.find(text, at)) != std::string::npos; at += text.size()) ++seen;
        return seen >= times;
      },
      timeout);
}

int OnTerminal::wait(std::chrono::milliseconds timeout) {
  int status = 0;
  const auto has_ended = [&] {
    shown();  // or the terminal would fill and hold the program up
    return ::waitpid(pid_, &status, WNOHANG) == pid_;
  };
  if (!ended_ && eventually(has_ended, timeout)) {
    ended_ = true;
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    shown();
  }
  return code_;
}

bool OnTerminal::echoes() const {
  termios modes{};
  check(Sys{::tcgetattr(master_.get(), &modes)}, "tcgetattr");
  return (modes.c_lflag & ECHO) != 0;
}

}  // namespace dtrain::test
