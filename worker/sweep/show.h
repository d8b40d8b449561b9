// What is said while a sweep works: on a terminal a line for each job that is redrawn, above it, and
// elsewhere, a line when a run starts and when it ends.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/metrics/progress.h"

namespace dtrain::sweep {

/// Writes to a descriptor; failed writes are ignored. Not thread-safe.
class Show {
 public:
  /// `fd` is borrowed. What a job is at is read from its run's metrics.
  Show(int fd, const Environment& environment, std::size_t runs);
  ~Show();
  Show(const Show&) = delete;
  Show& operator=(const Show&) = delete;

  /// A line of its own.
  void say(const std::string& text);
  /// The job at `place` works on a run now, or no more.
  void begin(int place, const std::string& name, const std::filesystem::path& run_dir);
  void end(int place);
  /// Runs that need no work any more, of all.
  void done(std::size_t count) { done_ = count; }
  /// Draws the jobs' lines again, on a terminal.
  void draw();
  /// Milliseconds after which draw() is worth a call; -1: never.
  int redraw_ms() const { return options_.terminal ? 250 : -1; }

 private:
  struct Line {
    std::string name;
    std::filesystem::path run_dir;
    TimePoint since;
  };
  std::string text_of(const Line& line, int width) const;
  void erase();
  void write(const std::string& text) const;

  int fd_;
  ProgressOptions options_;
  std::size_t runs_, done_ = 0, drawn_ = 0;  // drawn_: lines on the screen
  std::map<int, Line> lines_;
};

/// The last step that `metrics`, a run's metrics.jsonl, has; step 0 where there is none.
Progress last_step(const std::filesystem::path& metrics);

}  // namespace dtrain::sweep
