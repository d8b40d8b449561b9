// A sweep's folder: what is kept of it, so that it resumes wherever it was stopped.
//
//     SWEEP/sweep.json        which runs there are; written before the first one starts
//     SWEEP/runs/NAME/        a run's own folder, as `dtrain train --run-dir` has it
//     SWEEP/ends/NAME.json    how the run ended; a run without it is started, or resumed
//     SWEEP/logs/NAME.log     what its launcher and workers printed
//     SWEEP/results.json      all results, best first, as --json prints them
//     SWEEP/lock              held while a sweep works here
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "worker/sweep/config.h"
#include "worker/sweep/plan.h"

namespace dtrain::sweep {

/// How a run ended, for good.
struct RunEnd {
  bool finished = false;  ///< else it failed
  int exit_code = 0;
  std::string cause;   ///< of a failure: one line
  double seconds = 0;  ///< of its last start
};

class SweepFolder {
 public:
  /// Touches nothing.
  explicit SweepFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path run(const std::string& name) const { return path_ / "runs" / name; }
  std::filesystem::path log(const std::string& name) const { return path_ / "logs" / (name + ".log"); }
  std::filesystem::path results() const { return path_ / "results.json"; }

  /// Throws UsageError when the folder holds something else, or a sweep that `runs` of `config` do not resume
  /// with: each run it has must be among them, with the same options. Touches nothing; a folder that is
  /// missing is well.
  void check(const SweepConfig& config, const std::vector<Run>& runs) const;

  /// Makes the folder, takes its lock, checks again and writes sweep.json, durably. Throws as check(), and
  /// SystemError: EBUSY, naming the holder, when another sweep works here.
  void open(const SweepConfig& config, const std::vector<Run>& runs, Log& log);

  /// How `run` ended; nothing when it is to be started or resumed. One whose own summary says that it
  /// finished, and of whose end nothing was noted before the sweep was killed, has finished.
  std::optional<RunEnd> end_of(const Run& run) const;
  /// Notes it, durably. Throws SystemError.
  void note_end(const Run& run, const RunEnd& end) const;
  /// A run that failed is to be resumed.
  void forget_end(const Run& run) const;

 private:
  std::filesystem::path end_file(const std::string& name) const { return path_ / "ends" / (name + ".json"); }

  std::filesystem::path path_;
  UniqueFd lock_;
};

/// Whether the run in `folder` was trained to its end, by its summary.json.
bool is_finished(const std::filesystem::path& folder);

}  // namespace dtrain::sweep
