// The terminal on which the launcher was started: who reads what is typed there, its modes, and when a Ctrl-Z
// may stop the job. Workers have sessions of their own, to which it is a file like any other: they can read
// and write it without being stopped, but not open it as /dev/tty.
#pragma once

#include <termios.h>

#include <optional>

namespace dtrain::launcher {

/// What standard input is, as it was found when the object was made.
class Terminal {
 public:
  Terminal() noexcept;

  /// Standard input is a terminal, and what is typed there is meant for this job: it runs in the foreground,
  /// or under nobody who does job control.
  bool has_keyboard() const noexcept { return found_.has_value(); }

  /// The modes now (echo, line editing, …), a worker's if it has changed them; empty without a keyboard.
  std::optional<termios> modes() const noexcept;
  /// Nothing without a keyboard, or where they are set already.
  void set_modes(const std::optional<termios>& modes) const noexcept;
  /// The modes that were found: a worker that was killed while it read a password leaves the echo off.
  void restore() const noexcept { set_modes(found_); }

 private:
  std::optional<termios> found_;
};

/// Whether somebody could continue this process after a Ctrl-Z: it does not ignore SIGTSTP, and some process
/// of its group has a parent outside of the group but in its session, as below a shell with job control.
/// Where there is none (`docker exec -it`, `ssh -t HOST COMMAND`) the kernel stops no process on Ctrl-Z
/// either.
bool can_be_continued();

/// Stops this process as Ctrl-Z stops one that does not handle it; returns when it has been continued.
/// Changes nothing where the kernel finds that nobody could. SIGTSTP must be blocked.
void stop_until_continued();

}  // namespace dtrain::launcher
