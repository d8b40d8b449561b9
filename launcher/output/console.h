// The launcher's own stdout and stderr: queues lines, writes what the reader takes without ever blocking the
// loop, and keeps the workers' progress bars at the bottom of a terminal.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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
  std::size_t unwritten() const noexcept { return queue_.size() - written_; }
  bool wants_to_write() const noexcept { return unwritten() > 0; }
  /// So much waits that nothing more should be read from workers for now.
  bool full() const noexcept { return unwritten() > kHighWater; }
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

/// One stream of one worker, as the console tells it from others.
struct Speaker {
  bool to_err = false;     ///< shown on stderr
  std::string prefix;      ///< starts each of its lines
  std::string name = {};   ///< "rank 1: ", in front of its bar where there are several
  int order = 0;           ///< of its bar among the others
  bool marks_cuts = true;  ///< where somebody else's line cuts one of its own, kCut stands on both sides
};

class Console {
 public:
  /// Colours are used on terminals unless NO_COLOR is set.
  Console(int out_fd, int err_fd, const Environment& environment);

  Sink& out() noexcept { return out_; }
  Sink& err() noexcept { return err_; }

  /// A worker's line, or with `continued` the rest of the one that open() began; `text` has no newline.
  void line(const Speaker& speaker, std::string_view text, bool continued = false);
  /// The same without its end. The line stays open for what follows, unless others have something to say.
  void open(const Speaker& speaker, std::string_view text, bool continued = false);
  /// A worker's bytes as they are, on a stream where it alone speaks.
  void pass(const Speaker& speaker, std::string_view bytes);
  /// Nothing more comes from this speaker; to be called before its end.
  void forget(const Speaker& speaker);
  /// Something the launcher itself has to say (on stderr).
  void say(std::string_view text);
  /// The same for what went wrong.
  void complain(std::string_view text);

  /// Whether this speaker's text appears where bars can be kept: on the terminal behind stderr.
  bool shows_bars(const Speaker& speaker) const;
  /// Sets the speaker's bar at the bottom of the terminal, `text` without control characters; empty removes
  /// it.
  void bar(const Speaker& speaker, std::string_view text);
  /// Leaves the bars where they are and continues below them.
  void settle_bars();

  /// Writes what goes without blocking, and says once on either stream that the other loses output.
  void flush();
  /// Writes all, waiting for the readers until the deadline, then says how much was lost.
  void flush(const Deadline& deadline);

  /// A signal has asked the job to end: a reader that does not read is not to be waited for.
  void hurry() noexcept { hurried_ = true; }
  bool hurried() const noexcept { return hurried_; }

  /// Width of the terminal behind stderr, 80 when there is none.
  int columns() const;

 private:
  struct OpenLine {
    bool is_open = false, to_err = false, marks_cuts = false;
    const Speaker* speaker = nullptr;  // who may continue it
  };
  struct ByOrder {
    bool operator()(const Speaker* a, const Speaker* b) const { return a->order < b->order; }
  };

  Sink& sink_of(const Speaker& speaker) { return speaker.to_err ? err_ : out_; }
  OpenLine& open_on(bool to_err) { return open_[same_place_ || to_err ? 1 : 0]; }
  Sink& begin(const Speaker& speaker, bool continued);
  void close_line(bool to_err);
  void lift_bars();
  void lay_bars();
  std::vector<std::string> rows() const;
  void own_line(std::string_view colour, std::string_view text);
  void tell_losses();

  Sink out_, err_;
  bool same_place_;  // both streams are one file or terminal
  bool colour_out_, colour_err_;
  OpenLine open_[2];  // on stdout, on stderr
  std::map<const Speaker*, std::string, ByOrder> bars_;
  std::size_t laid_rows_ = 0;  // of bars that are on the terminal now
  bool bars_changed_ = false, hurried_ = false;
};

}  // namespace dtrain::launcher
