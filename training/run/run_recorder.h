// What rank 0 leaves behind: the run directory with its configuration, metrics, curves, checkpoints and
// summary, and what it shows while training.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/log.h"
#include "runtime/checkpoint/async_writer.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/run_directory.h"
#include "runtime/metrics/tensorboard.h"
#include "training/engine/evaluate.h"
#include "training/recipe.h"

namespace dtrain {

/// How a run went, for summary.json.
struct RunSummary {
  std::string status;  ///< "finished", "stopped" (by a signal, resumable)
  std::int64_t steps = 0, epochs = 0, world_size = 1;
  double loss = 0, samples_per_second = 0, seconds = 0;
  std::optional<Evaluation> evaluation;
  std::optional<double> seconds_to_first_step;  ///< since the launcher (or this process) started
  std::int64_t resumed_from_step = 0;
  MemoryUse memory;                                  ///< of rank 0 at the end
  std::map<std::string, double> phase_milliseconds;  ///< a step's time by phase
};

class RunRecorder {
 public:
  /// Opens `run`, which exists and whose lock `checkpoints` holds. Goes on after `resumed`, or from the
  /// start: metrics and checkpoints of later steps are dropped and set aside. Checks that `checkpoint_bytes`
  /// fit. Writing checkpoints leaves spans in `spans`, borrowed, unless it is null.
  RunRecorder(const RunDirectory& run, std::unique_ptr<CheckpointStore> checkpoints, const Options& options,
              const Environment& environment, const Recipe& recipe, const std::optional<Checkpoint>& resumed,
              std::uint64_t checkpoint_bytes, Log& log, SpanRecorder* spans);

  /// Shows the step; writes it to metrics.jsonl and the curves when `record` is set.
  void step(const StepRecord& step, const Progress& progress, bool record);
  void evaluation(const EvalRecord& evaluation, std::int64_t step);
  /// Copies `snapshot` and writes it beside training. Metrics up to it are made durable first.
  void checkpoint(const Snapshot& snapshot, const Deadline& deadline);
  /// Prints a line of its own.
  void message(const std::string& text) { progress_.message(text); }
  /// Waits for the last checkpoint, writes summary.json and report.html.
  void finish(const RunSummary& summary, const Deadline& deadline);

 private:
  RunDirectory run_;
  MetricsLog metrics_;
  TensorBoardWriter curves_;
  ProgressLine progress_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  AsyncCheckpointWriter writer_;
  Log* log_;
};

/// The folder of this run: --run-dir, or runs/<time>-<model>, where <time> is when the launcher started, so
/// that a group that is started again finds its run. Rank 0 only.
std::filesystem::path choose_run_dir(const Recipe& recipe, const Environment& environment);

/// Takes the lock of `run` before anything in it is touched, or read to go on from: its last writer may still
/// be busy. Rank 0 only. Throws as CheckpointStore::begin_writing, naming --run-dir.
std::unique_ptr<CheckpointStore> lock_run(const Recipe& recipe, const RunDirectory& run, Log& log);

/// What --resume asks for: the checkpoint to go on from, verified, or nothing for a fresh start. Rank 0 only.
/// Throws UsageError when `never` meets checkpoints or the checkpoint is of another recipe, DataError when
/// none of those there can be used, SystemError when one that may be good cannot be read.
std::optional<Checkpoint> find_checkpoint(const Recipe& recipe, const RunDirectory& run, Log& log);

}  // namespace dtrain
