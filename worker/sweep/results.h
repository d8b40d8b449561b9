// What came out of a sweep's runs: read from their folders, sorted, as a table and as JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/sweep/folder.h"

namespace dtrain::sweep {

enum class RunStatus {
  waiting,  ///< not begun
  begun,    ///< has a folder and no end: is resumed when the sweep is
  finished,
  failed,
};

struct RunResult {
  Run run;
  RunStatus status = RunStatus::waiting;
  std::map<std::string, double> values;  ///< what the summary has of the test set (accuracy, loss, …);
                                         ///< without a test set, "loss" is the last step's
  double seconds = 0;                    ///< of training, since its last start
  double samples_per_second = 0;
  std::int64_t steps = 0;
  std::string cause;  ///< of a failure
};

/// "finished", ….
std::string_view name_of(RunStatus status);

/// What is in `folder` of these runs, in their order. A summary that cannot be read gives no values.
std::vector<RunResult> read_results(const SweepFolder& folder, const std::vector<Run>& runs);

/// `asked` where it is not empty, else accuracy where a run has one, else loss.
std::string metric_of(const std::string& asked, const std::vector<RunResult>& results);

/// What is wrong with the metric `asked` for: some run has finished, and none that has knows it. Empty:
/// nothing, or none has finished yet.
std::string wrong_metric(const std::string& asked, const std::vector<RunResult>& results);

/// Best first; runs without that value behind them, in their own order, failed ones last.
void sort_results(std::vector<RunResult>& results, const std::string& metric);

/// A line of headings and one a run, columns aligned: rank, each swept option, each value (`metric` first),
/// seconds.
std::string results_table(const std::vector<RunResult>& results, const std::string& metric);

/// The same and more as one JSON object.
std::string results_json(const SweepFolder& folder, const std::vector<RunResult>& results,
                         const std::string& metric);

}  // namespace dtrain::sweep
