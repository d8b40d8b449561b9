#include "launcher/process/terminal.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/system/descendants.h"

namespace dtrain::launcher {
namespace {

// In the background the keyboard is the shell's, and changing modes would stop this process (SIGTTOU). A
// terminal that is not that of the own session knows no foreground.
bool in_foreground() {
  const pid_t group = ::tcgetpgrp(STDIN_FILENO);
  return group < 0 ? errno == ENOTTY : group == ::getpgrp();
}

std::optional<termios> modes_of_stdin() {
  termios modes{};
  if (::isatty(STDIN_FILENO) == 0 || !in_foreground()) return std::nullopt;
  return ::tcgetattr(STDIN_FILENO, &modes) == 0 ? std::optional(modes) : std::nullopt;
}

bool are_equal(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && std::equal(std::begin(a.c_cc), std::end(a.c_cc), std::begin(b.c_cc));
}

bool ignores_stop() {
  struct sigaction action {};
  return ::sigaction(SIGTSTP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Terminal::Terminal() noexcept : found_(modes_of_stdin()) {}

std::optional<termios> Terminal::modes() const noexcept {
  return has_keyboard() ? modes_of_stdin() : std::nullopt;
}

void Terminal::set_modes(const std::optional<termios>& modes) const noexcept {
  const auto now = this->modes();
  if (modes && now && !are_equal(*now, *modes)) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*modes);
}

// Up the chain of parents to the first one outside of the group. Where only a process beside it has such a
// parent, this one counts as not to be continued, and runs on.
bool can_be_continued() {
  if (ignores_stop()) return false;
  const pid_t group = ::getpgrp(), session = ::getsid(0);
  pid_t parent = ::getppid();
  while (parent > 0 && ::getpgid(parent) == group) {
    const auto process = find_process(parent);
    parent = process ? process->parent : 0;
  }
  return parent > 0 && ::getsid(parent) == session;
}

void stop_until_continued() {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, &before);  // here it stops
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace dtrain::launcher
