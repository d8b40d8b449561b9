// One stream of one worker: the pipe the launcher reads, the file it copies to, what it shows on the console,
// and the last lines for the failure report.
#pragma once

#include <ios>
#include <memory>
#include <optional>
#include <string>

#include "launcher/output/console.h"
#include "launcher/output/filtered_log.h"
#include "launcher/output/lines.h"
#include "launcher/output/log_file.h"
#include "launcher/plan/plan.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

struct CaptureOptions {
  bool to_err = false;              ///< the worker's stderr, shown on ours
  bool passthrough = false;         ///< nothing is changed: control characters, ends of lines
  bool alone = false;               ///< no other worker's output comes beside it
  bool progress = false;            ///< the worker knows that its stderr is shown on a terminal
  bool inherit = false;             ///< the worker writes to our own descriptor; nothing is captured
  std::string log_folder;           ///< where stream.file goes; made when needed
  std::string mark;                 ///< begins what is appended to a file of an earlier job
  FilteredLog* filtered = nullptr;  ///< gets lines of a stream that goes to file and console
  std::string name;                 ///< of the worker, in front of its bar
  int order = 0;                    ///< of its bar among those of others
};

/// What a worker prints becomes lines of ours. A stdout that comes from one worker alone is data, and is
/// passed on byte by byte unless a terminal is behind it. Of a progress bar (text that carriage returns
/// replace) a terminal shows each state, a file the newest every kStateInterval. A line without an end is
/// shown when nothing has followed for kQuiet.
class Capture {
 public:
  static constexpr Duration kQuiet = std::chrono::seconds(1), kStateInterval = std::chrono::seconds(5);

  /// Opens the pipe or the file that the worker gets. `console` and `clock` must outlive it. Throws
  /// SystemError, and UsageError when another job writes to the file.
  Capture(const StreamPlan& stream, std::string prefix, const CaptureOptions& options, Console& console,
          const Clock& clock = steady_clock());

  /// The descriptor that becomes the worker's stream, -1 where it keeps ours; valid until started().
  int worker_end() const noexcept { return worker_end_.get(); }
  /// The worker has its copy: lets go of ours, so that the pipe ends with the workers.
  void started() noexcept { worker_end_.reset(); }

  /// What to poll, -1 when nothing (more) comes, or console or file take nothing for now.
  int poll_fd();
  /// The worker is held back by its log file; look again soon, nothing to poll tells.
  bool held_back() const { return pipe_ && file_ && file_->full(); }
  /// Reads what is there, at most `limit` bytes; false when nothing came.
  bool read_some(std::size_t limit);
  /// Reads all that is there now and treats an unfinished line as finished. Not to be moved before that.
  void finish();
  /// When keep_time() has something to show; empty when never.
  std::optional<TimePoint> deadline() const noexcept { return due_; }
  /// Shows what has waited long enough.
  void keep_time();
  /// Waits until the log file has all, or has stalled; false when the deadline passes first.
  bool settle_file(const Deadline& deadline) const { return !file_ || file_->settle(deadline); }
  /// The log file ends here; what it has not taken is dropped.
  void give_up_file();

  /// The last lines of the stream, read back from the file where it went there directly.
  std::deque<std::string> last_lines() const;
  /// Path of the log file, empty when there is none.
  const std::string& file_path() const noexcept { return file_path_; }

 private:
  bool is_data() const;
  void take(std::string_view bytes);
  void finish_line();
  void set_deadline();
  void show_state();
  void emit(const TextLine& line);
  std::string shown_text(const TextLine& line) const;
  void tell_losses();
  Sink& sink() { return options_.to_err ? console_.err() : console_.out(); }

  CaptureOptions options_;
  Console& console_;
  const Clock& clock_;
  Speaker speaker_;
  bool to_console_, data_ = false, bars_ = false;
  UniqueFd pipe_, worker_end_;
  std::string file_path_;
  std::streamoff file_begin_ = 0;  // where this worker's part begins: what is before is another job's
  UniqueFd log_lock_;
  std::unique_ptr<LogFile> file_;
  std::string filtered_line_;  // as far as it has come
  LineSplitter lines_;
  Tail tail_;
  std::optional<TimePoint> due_;
  TimePoint next_state_{};   // not to be shown before
  std::string shown_state_;  // the last one
};

}  // namespace dtrain::launcher
