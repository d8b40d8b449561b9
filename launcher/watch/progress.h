// Which workers still get on with their work: pure state, fed with what they have used and printed and with
// the time. Reads no clock and knows no process.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::launcher {

/// What a worker and all below it have used since they started.
struct Usage {
  double cpu_seconds = 0;
  std::uint64_t io_bytes = 0;        ///< read and written, in files and pipes
  std::uint64_t resident_bytes = 0;  ///< now; what processes share is counted in each of them
};

/// A worker at the moment of a report.
struct WorkerProgress {
  Duration idle{};                     ///< since it last got on
  std::optional<Duration> since_line;  ///< since its last output; empty: there was none
  std::optional<double> cpu_share;     ///< cores used between the last two looks; empty: there were none
};

class ProgressWatch {
 public:
  /// `timeout`: a worker that does nothing for this long hangs. 0: none ever does.
  ProgressWatch(int workers, Duration timeout, TimePoint now);

  /// When to look at the workers again; empty when not watching.
  std::optional<TimePoint> next_look() const { return next_look_; }

  /// Worker `index` printed something.
  void on_output(int index, TimePoint now);
  /// Worker `index` has ended: it is not looked at any more.
  void on_exit(int index);

  enum class Change {
    none,
    stalled,  ///< a worker has done nothing for the timeout; said once until all make progress again
    resumed,  ///< after `stalled`: they do, and none of them has ended meanwhile
  };
  /// `usage` of each worker, empty where it cannot be told: such a worker counts as making progress.
  Change look(const std::vector<std::optional<Usage>>& usage, TimePoint now);

  /// Those that have not ended, as of the last look.
  std::vector<std::optional<WorkerProgress>> workers(TimePoint now) const;
  bool hangs(int index, TimePoint now) const;

  /// Less than this in a look's time is what idle programs do too: timers, keep-alives.
  static constexpr double kIdleShare = 0.02;
  static constexpr std::uint64_t kIdleBytesPerSecond = 4096;

 private:
  struct Worker {
    bool ended = false;
    TimePoint active{};  ///< when it was last seen to get on
    std::optional<TimePoint> line;
    std::optional<Usage> usage;
    std::optional<double> cpu_share;
  };

  bool got_on(Worker& worker, const std::optional<Usage>& usage, TimePoint now) const;

  std::vector<Worker> workers_;
  Duration timeout_;
  TimePoint looked_{};
  std::optional<TimePoint> next_look_;
  bool told_ = false;   // that somebody hangs
  bool ended_ = false;  // a worker has, since then
};

}  // namespace dtrain::launcher
