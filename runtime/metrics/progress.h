// A progress line, as rank 0's: redrawn in place on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/environment.h"

namespace dtrain {

/// What there is to say about a run in progress.
struct Progress {
  std::int64_t step = 0;         ///< finished optimizer steps
  std::int64_t total_steps = 0;  ///< 0 when not known
  std::int64_t epoch = 0;        ///< from 0; shown from 1
  std::int64_t epochs = 0;       ///< 0 when not known
  double loss = 0;
  double samples_per_second = 0;
  std::int64_t tokens_per_sample = 0;  ///< the rate is shown in tokens then; 0: in samples
  std::optional<Duration> time_left;
  std::int64_t resident_bytes = 0;  ///< 0: not shown
  /// What has been done, where that is no training: "61.5 MB, 12 shards". Shown for step, epoch and loss,
  /// which then only say how far it is.
  std::string done = {};
};

/// One line, no newline, at most `width` columns (less important parts are left out first; 0: no limit). With
/// `bar` a progress bar fills what is left and the step keeps its width. With `colour` the loss is bold.
/// Pure.
std::string format_progress(const Progress& progress, int width, bool bar, bool colour);

/// Lines of at most `width` columns: longer ones are broken at spaces, and continue behind two more. A word
/// that is longer, as a path is, stays whole. UTF-8, a character a column; 0: no limit.
std::string wrap_words(const std::string& text, int width);

/// "1 h 02 min", "3 min 20 s", "12 s".
std::string format_duration(Duration duration);
/// "61.5 MiB".
std::string format_bytes(std::int64_t bytes);

struct ProgressOptions {
  bool terminal = false;       ///< redraw in place
  bool colour = false;         ///< only used on a terminal
  std::function<int()> width;  ///< columns of the terminal, asked before each redraw; empty: 80
  Duration redraw_every = std::chrono::milliseconds(100);
  Duration print_every = std::chrono::seconds(10);  ///< not on a terminal
  int results_at_once = 100;                        ///< result() prints as many without a pause
  Duration result_every = std::chrono::seconds(1);
};

/// The options that suit `fd`: whether it shows on a terminal, its window size, and NO_COLOR.
ProgressOptions progress_options_for(int fd, const Environment& environment);

/// Where a worker draws progress: on its standard output, or, when the launcher relays a terminal, on
/// standard error, where the launcher expects updates.
struct ProgressTarget {
  int fd;
  ProgressOptions options;
};
ProgressTarget worker_progress_target(const Environment& environment);

/// Draws progress on a descriptor. Failed writes are ignored: progress is never worth a run. Not thread-safe.
class ProgressLine {
 public:
  /// `fd` and `clock` are borrowed.
  ProgressLine(int fd, ProgressOptions options, const Clock& clock = steady_clock());
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows `progress` when it is time to (the first call, then every redraw_every or print_every); fills in
  /// time_left from the pace so far when it is empty and total_steps is known.
  void update(const Progress& progress);
  /// Prints a line of its own above the progress line (a saved checkpoint), on a terminal as wrap_words() has
  /// it.
  void message(const std::string& text);
  /// The same for what may come many times a second (evaluations of a small network): after results_at_once
  /// of them one is printed each result_every, and the last one at finish(). What is left out is counted.
  /// On a terminal that is too narrow for `text` stands `shorter`, unless it is empty.
  void result(const std::string& text, const std::string& shorter = {});
  /// Shows the last progress if it was not, and leaves the line. The destructor does it too.
  void finish();

 private:
  void show();
  void estimate();
  void print_result(const std::string& text);
  int width() const { return options_.width ? options_.width() : 80; }

  int fd_;
  ProgressOptions options_;
  const Clock* clock_;
  Progress last_;
  std::optional<TimePoint> first_at_;  ///< when first_step_ was reported
  std::int64_t first_step_ = 0;
  std::optional<TimePoint> shown_at_;
  std::optional<TimePoint> result_at_;
  Duration results_allowed_{};     ///< at result_at_: result_every for each
  std::string held_result_;        ///< came too soon; empty: none
  std::int64_t results_held_ = 0;  ///< since the last that was printed
  bool pending_ = false;           ///< last_ was not shown yet
  bool drawn_ = false;             ///< the terminal's cursor is in the progress line
};

}  // namespace dtrain
