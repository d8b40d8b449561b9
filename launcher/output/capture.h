// One stream of one worker: the pipe the launcher reads, the file it copies to, the console lines it makes,
// and the last lines for the failure report.
#pragma once

#include <memory>
#include <string>

#include "launcher/output/console.h"
#include "launcher/output/lines.h"
#include "launcher/output/log_file.h"
#include "launcher/plan/plan.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

struct CaptureOptions {
  bool to_err = false;       ///< the worker's stderr, shown on ours
  bool passthrough = false;  ///< control characters are left alone
  bool progress = false;     ///< carriage returns update the console's progress line
  bool inherit = false;      ///< the worker writes to our own descriptor; nothing is captured
  std::string log_folder;    ///< where stream.file goes; made when needed
};

class Capture {
 public:
  /// Opens the pipe or the file that the worker gets. Throws SystemError.
  Capture(const StreamPlan& stream, std::string prefix, const CaptureOptions& options, Console& console);

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
  /// Reads all that is there now and treats an unfinished line as finished.
  void finish();
  /// Waits until the log file has all, or has stalled; false when the deadline passes first.
  bool settle_file(const Deadline& deadline) const { return !file_ || file_->settle(deadline); }
  /// The log file ends here; what it has not taken is dropped.
  void give_up_file();

  /// The last lines of the stream, read back from the file where it went there directly.
  std::deque<std::string> last_lines() const;
  /// Path of the log file, empty when there is none.
  const std::string& file_path() const noexcept { return file_path_; }

 private:
  void take(std::string_view bytes);
  void take_progress(std::string_view bytes);
  void emit(std::string_view line);
  void tell_losses();
  Sink& sink() { return options_.to_err ? console_.err() : console_.out(); }

  CaptureOptions options_;
  std::string prefix_;
  Console& console_;
  bool to_console_;
  UniqueFd pipe_, worker_end_;
  std::string file_path_;
  std::unique_ptr<LogFile> file_;
  LineSplitter lines_;
  Tail tail_;
};

}  // namespace dtrain::launcher
