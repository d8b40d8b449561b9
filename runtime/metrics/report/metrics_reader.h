// What the page draws of metrics.jsonl, line by line, so that a run in progress is followed without reading
// its file again. Internal to runtime/metrics.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// One point of a curve.
struct CurvePoint {
  double step = 0;
  double seconds = 0;  ///< since the run's first line; NaN: the line does not say
  double value = 0;    ///< NaN: the run had no finite number there
};

/// By step, strictly ascending.
using Curve = std::vector<CurvePoint>;

/// Where a step's time goes, in milliseconds: parts[p] of ranks[r] is milliseconds[r][p].
struct PhaseTimes {
  std::vector<std::string> parts;
  std::vector<std::int64_t> ranks;
  std::vector<std::vector<double>> milliseconds;
  std::string measured;  ///< "mean of steps 1 to 450"

  bool empty() const noexcept { return ranks.empty(); }
};

struct EpochRow {
  std::optional<double> seconds;  ///< of training, without the evaluation
  bool whole = true;              ///< false: a restart resumed in the middle of it
  std::optional<double> loss;     ///< of the evaluation
  std::map<std::string, double> metrics;
};

struct RunMetrics {
  Curve train_loss, learning_rate, samples_per_second, allocated_bytes, resident_bytes, eval_loss;
  std::map<std::string, Curve> eval_metrics;  ///< "accuracy", …
  std::map<std::int64_t, EpochRow> epochs;    ///< from 0
  std::map<std::int64_t, std::string> shown;  ///< by step, the newest: what the network has learned
  PhaseTimes phases;                          ///< empty: the file does not say
  std::int64_t last_step = 0;
  std::optional<double> first_time, last_time;  ///< seconds since 1970
  std::int64_t losses_not_finite = 0, first_loss_not_finite = 0;
  std::int64_t lines = 0, lines_left_out = 0, first_line_left_out = 0;
};

class MetricsReader {
 public:
  /// Adds what has been appended to the file since the last call, in pieces of any size. A last line without
  /// its newline waits for the rest. Lines that are no JSON objects are counted and left out, those of
  /// unknown events passed over, and so are those that a start of training wrote after lines of a later one.
  /// Where steps begin again, the later lines count. Never throws for what the text says.
  void add(std::string_view text);

  const RunMetrics& metrics() const noexcept { return metrics_; }

 private:
  void line(std::string_view text);
  bool record(std::string_view text);

  RunMetrics metrics_;
  std::string begun_;     ///< a line whose end has not come
  bool passing_ = false;  ///< over the rest of a line that is too long to be one of ours
  double newest_start_ = 0;
  double phase_steps_ = 0;  ///< that the means of metrics_.phases are over
};

}  // namespace dtrain
