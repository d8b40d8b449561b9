// The launcher's own stdout and stderr: queues whole lines, writes what the reader takes without ever
// blocking the loop, and keeps one progress line at the bottom of a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launcher/output/losses.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// One of the two streams.
class Sink {
 public:
  /// `fd` is borrowed and never made non-blocking (others share it): terminals and pipes are opened once
  /// more.
  Sink(int fd, const Environment& environment);

  int fd() const noexcept { return fd_; }
  bool terminal() const noexcept { return terminal_; }
  bool wants_to_write() const noexcept { return written_ < queue_.size(); }
  /// So much waits that nothing more should be read from workers for now.
  bool full() const noexcept { return queue_.size() - written_ > kHighWater; }
  /// The reader has gone away: whatever comes is dropped, for good.
  bool broken() const noexcept { return broken_; }
  /// What could not be written for another reason: a full or failing disk, which may recover. It is dropped;
  /// the next flush tries again.
  Losses& losses() noexcept { return losses_; }

  void append(std::string_view text);
  /// Writes as much as goes without blocking; to be called when poll(2) says POLLOUT, or at any time.
  void flush();
  /// Writes all, waiting for the reader until the deadline.
  void flush(const Deadline& deadline);

 private:
  static constexpr std::size_t kHighWater = std::size_t{1} << 20;
  std::ptrdiff_t write_some(std::string_view text);
  void drop_queue(int error);

  int fd_;
  UniqueFd own_;  // the same stream, opened for us alone and not blocking; empty where that cannot be
  bool terminal_, regular_file_, broken_ = false, mid_line_ = false;
  Losses losses_;
  std::string queue_;
  std::size_t written_ = 0;
};

class Console {
 public:
  /// Colours are used on terminals unless NO_COLOR is set.
  Console(int out_fd, int err_fd, const Environment& environment);

  Sink& out() noexcept { return out_; }
  Sink& err() noexcept { return err_; }

  /// A worker's line for stdout or stderr; `text` has no newline.
  void line(bool to_err, std::string_view prefix, std::string_view text);
  /// Something the launcher itself has to say (on stderr).
  void say(std::string_view text);
  /// The same for what went wrong.
  void complain(std::string_view text);
  /// Replaces the progress line; empty removes it. Only on a terminal; elsewhere nothing happens.
  void progress(std::string_view text);
  /// Leaves the progress line where it is and goes on below it.
  void settle_progress();

  /// Writes what goes without blocking, and says once on either stream that the other loses output.
  void flush();
  /// Writes all, waiting for the readers until the deadline, then says how much was lost.
  void flush(const Deadline& deadline);

  /// Width of the terminal behind stderr, 80 when there is none.
  int columns() const noexcept { return columns_; }

 private:
  void lift_progress();
  void lay_progress();
  void own_line(std::string_view colour, std::string_view text);
  void tell_losses();

  Sink out_, err_;
  bool colour_out_, colour_err_;
  int columns_ = 80;
  std::string progress_;
};

}  // namespace dtrain::launcher
