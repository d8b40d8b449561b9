// A run's folder, read again and again while it grows. Internal to runtime/metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/metrics/report/metrics_reader.h"
#include "runtime/metrics/report/run_files.h"
#include "runtime/metrics/run_directory.h"

namespace dtrain {

/// All that a page shows of a run.
struct RunReport {
  std::string config, summary;    ///< object_in() of the files; empty where there is none
  std::string batch, evaluation;  ///< shown_batch(), shown_evaluation(); empty where there is none
  PhaseTimes traced;              ///< of the traces
  LogFacts log;
  std::vector<std::string> notes;  ///< what could not be read, in sentences
};

class RunFollower {
 public:
  /// For a folder that is there. Reads nothing yet.
  explicit RunFollower(RunDirectory run) : run_(std::move(run)) {}

  const RunDirectory& run() const noexcept { return run_; }

  /// Reads what is new. A metrics.jsonl that was cut (a resumed run does that) is read from its beginning.
  /// Whether anything changed since the last call. Throws SystemError when a file cannot be read; one that is
  /// missing is empty.
  bool poll();

  const RunMetrics& metrics() const noexcept { return reader_.metrics(); }
  const RunReport& report() const noexcept { return report_; }

 private:
  bool read_metrics();
  bool is_same_file(int fd) const;
  void read_facts();

  RunDirectory run_;
  MetricsReader reader_;
  RunReport report_;
  std::uint64_t read_bytes_ = 0;
  std::string last_bytes_;  ///< of what was read: where a file that was cut grows again, they are others
  std::string seen_;        ///< sizes and times of the other files
};

}  // namespace dtrain
