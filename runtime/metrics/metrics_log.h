// metrics.jsonl: one JSON object a line, each written by one write(2), so that a kill tears at most the last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/checkpoint/run_generations.h"
#include "runtime/metrics/memory.h"

namespace dtrain {

/// One finished optimizer step. Numbers are printed to read back exactly; NaN and infinities become null.
struct StepRecord {
  std::int64_t step = 0;  ///< finished optimizer steps, from 1
  std::int64_t epoch = 0;
  double loss = 0;  ///< mean over the global batch, before this step's update
  double lr = 0;
  double samples_per_second = 0;
  double time = 0;  ///< when the step was finished, seconds since 1970; 0: not told
  /// Loss scaling in float16: the scale after this step and the steps skipped so far; 0 and -1: none in use.
  double loss_scale = 0;
  std::int64_t skipped_steps = -1;
  std::optional<MemoryUse> memory = std::nullopt;  ///< of this rank; unset: not told
  /// Of asynchronous updates: by how many others it came late, and by how many this rank was ahead of the
  /// slowest; unset where updates are made together.
  std::optional<std::int64_t> staleness = std::nullopt, ahead = std::nullopt;
  /// Of a step of several phases, by their names; `loss` is the sum. Empty: a step is one.
  std::vector<std::pair<std::string, double>> losses = {};
};

/// One evaluation over all samples of the test set.
struct EvalRecord {
  std::int64_t epoch = 0;  ///< -1: of the initial weights
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics =
      {};  ///< "accuracy" (0 … 1), …; each a field of the line
  std::int64_t samples = 0;
};

/// One pass over the training set that is over.
struct EpochRecord {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< its last
  double seconds = 0;     ///< of training, without the evaluation after it
  bool whole = true;      ///< false: this start of the run began in the middle of it
  double time = 0;        ///< when it was over, seconds since 1970; 0: not told
  /// Metrics of its samples as they were trained on, "accuracy" and so on: each is a field train_… of the
  /// line, and their number is train_samples. Empty: none.
  std::vector<std::pair<std::string, double>> train = {};
  std::int64_t train_samples = 0;
};

/// Where the ranks' time went in the last steps, in milliseconds a step.
struct PhasesRecord {
  std::int64_t step = 0;   ///< the last of them
  std::int64_t steps = 0;  ///< how many
  /// By part ("forward"): of rank 0, 1, …
  std::vector<std::pair<std::string, std::vector<double>>> milliseconds = {};
  double time = 0;  ///< when they were compared, seconds since 1970; 0: not told
};

/// A text that shows what the network has learned (Task::show).
struct SampleRecord {
  std::int64_t step = 0;
  std::string text;  ///< what is no UTF-8 is replaced
};

/// The line for a record, without a newline and without the start that wrote it.
std::string format_record(const StepRecord& record);
std::string format_record(const EvalRecord& record);
std::string format_record(const EpochRecord& record);
std::string format_record(const PhasesRecord& record);
std::string format_record(const SampleRecord& record);

/// Appends to a run's metrics.jsonl. Rank 0 only. Not thread-safe.
class MetricsLog {
 public:
  /// Opens or creates `path`; a torn last line (no newline) is cut off. Throws SystemError.
  /// `start`: which start of the run writes (RunGenerations); each line has it.
  MetricsLog(const std::filesystem::path& path, std::int64_t start);

  /// Each is one write(2). Throw SystemError (disk full: the partial line is taken back).
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(const EpochRecord& record);
  void write(const PhasesRecord& record);
  void write(const SampleRecord& record);

  /// Cuts the log after the last line of a step up to `step` (0: none) that belongs to the run, so that
  /// after a resume from `step` each step is there once. Evaluations after that line are kept; when the
  /// resumed run writes the very same one again it is dropped. What a start wrote after `starts` had it
  /// superseded counts for nothing; it stays where lines of the run come after it. Throws SystemError.
  void truncate_after(std::int64_t step, const RunGenerations& starts);

  /// Makes what was written durable; call it before the checkpoint of a step is saved. Throws SystemError.
  void sync();

 private:
  void cut(std::size_t bytes);

  std::filesystem::path path_;
  std::int64_t start_;
  UniqueFd fd_;
  std::vector<std::string> kept_evaluations_;  ///< lines after the last kept step, since truncate_after
};

}  // namespace dtrain
