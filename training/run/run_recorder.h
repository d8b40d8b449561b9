// What rank 0 leaves behind: the run directory with its configuration, metrics, curves, checkpoints and
// summary, and what it shows while training.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parallel/server/delays.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/data/source.h"
#include "runtime/metrics/metrics_log.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/run_directory.h"
#include "runtime/metrics/tensorboard.h"
#include "training/engine/evaluate.h"
#include "training/options/train_config.h"
#include "training/run/choices.h"
#include "training/run/scribe.h"

namespace dtrain {

/// How a run went, for summary.json.
struct RunSummary {
  std::string status;      ///< "finished", "stopped" (by a signal, resumable)
  std::string device;      ///< rank 0's
  bool emulated = false;   ///< then times and rates say nothing about a GPU
  std::int64_t start = 0;  ///< which start of the run this was
  std::int64_t steps = 0, epochs = 0, world_size = 1;
  double loss = 0, samples_per_second = 0, seconds = 0;
  std::optional<Evaluation> evaluation;
  std::optional<double> seconds_to_first_step;  ///< since the launcher (or this process) started
  std::int64_t resumed_from_step = 0;
  MemoryUse memory;                                  ///< of rank 0 at the end
  std::optional<UpdateDelays> delays;                ///< of the asynchronous updates of all ranks
  std::map<std::string, double> phase_milliseconds;  ///< a step's time by phase
};

class RunRecorder {
 public:
  /// Opens `run`, which exists and whose lock this process holds. `fields` are those of its samples,
  /// `choices` what was decided that no option said (StrategyReport::choices), for read_choices() of a later
  /// start. As start number `start` of the run goes on after step `resumed_step`, or from the beginning (0):
  /// metrics of later steps are dropped.
  RunRecorder(const RunDirectory& run, const Options& options, const Environment& environment,
              const TrainConfig& recipe, std::span<const Field> fields, const Device& device,
              const Choices& choices, std::int64_t start, std::int64_t resumed_step);

  // ---- handed to `scribe`, whose thread calls all the rest
  void show(Scribe& scribe, const Progress& progress);
  /// To metrics.jsonl and the curves.
  void step(Scribe& scribe, StepRecord step);
  void evaluation(Scribe& scribe, const EvalRecord& evaluation, std::int64_t step);
  void epoch(Scribe& scribe, EpochRecord epoch);
  void phases(Scribe& scribe, PhasesRecord phases);

  /// Makes metrics up to now durable: before a checkpoint, which must not be ahead of them.
  void sync() { metrics_.sync(); }
  /// Prints a line of its own.
  void message(const std::string& text) { progress_.message(text); }
  /// Writes summary.json and report.html: after the last checkpoint is durable.
  void finish(const RunSummary& summary);

 private:
  RunDirectory run_;
  void curve(Scribe& scribe, std::string tag, double value, std::int64_t step, double now);

  MetricsLog metrics_;
  TensorBoardWriter curves_;
  ProgressLine progress_;
};

/// The folder of this run: --run-dir, or runs/<time>-<model>, where <time> is when the launcher started, so
/// that a group that is started again finds its run. Rank 0 only.
std::filesystem::path choose_run_dir(const TrainConfig& recipe, const Environment& environment);

/// Takes the lock of `run` before anything in it is touched, or read to go on from: its last writer may still
/// be busy. `permit`: without it the run's checkpoints are not written. Rank 0 only. Throws as
/// CheckpointStore::begin_writing, naming --run-dir.
std::unique_ptr<CheckpointStore> lock_run(const TrainConfig& recipe, const RunDirectory& run,
                                          const WritePermit& permit, Log& log);

/// What --resume asks for: the checkpoint to go on from, verified and without an objection by `unusable`, or
/// nothing for a fresh start. Rank 0 only. Throws UsageError when `never` meets checkpoints or the checkpoint
/// is of another recipe, DataError when none of those there can be used, SystemError when one that may be
/// good cannot be read.
std::optional<Checkpoint> find_checkpoint(const TrainConfig& recipe, const RunDirectory& run,
                                          const CheckpointTest& unusable, Log& log);

}  // namespace dtrain
