// The log of a run: from each finished step to what is kept of it. Rank 0 has the sinks, metrics.jsonl,
// curves for TensorBoard, the progress line and at the end summary.json and the report; each rank has a log
// of its own, and the samples it takes where they are asked for. Keeps the rates and times that go with them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/files/background_writer.h"
#include "runtime/base/files/worker_status.h"
#include "runtime/base/files/write_permit.h"
#include "runtime/metrics/run_directory.h"
#include "runtime/metrics/step_clock.h"
#include "training/engine/step_reports.h"
#include "training/log/introduction.h"
#include "training/log/pictures.h"
#include "training/log/run_progress.h"
#include "training/log/run_records.h"
#include "training/log/spike_detector.h"
#include "training/log/straggler_detector.h"
#include "training/log/worker_log.h"

namespace dtrain {

/// What a logger borrows; all of it outlives it.
struct RunLoggerContext {
  const TrainConfig& config;
  const Environment& environment;
  const Device& device;
  StepClock& clock;
  WorkerLog& log;
  SpanRecorder* spans;  ///< may be null
  int rank = 0, world_size = 1;
  WritePermit permit = {};           ///< without it nothing is written
  StatusReporter* status = nullptr;  ///< null: nobody asks
};

/// One rank's. Used by the training thread.
class RunLogger {
 public:
  explicit RunLogger(const RunLoggerContext& context);
  ~RunLogger();
  RunLogger(const RunLogger&) = delete;
  RunLogger& operator=(const RunLogger&) = delete;

  /// Rank 0: from now on everything is recorded in `run`, which exists and whose lock this process holds,
  /// with `config` as its config.json. Start number `start` of the run resumes after `resumed_step`, or
  /// begins it (0): metrics of later steps are dropped.
  void record_in(const RunDirectory& run, const std::string& config, std::int64_t start,
                 std::int64_t resumed_step);
  /// Nothing is recorded any more.
  void stop_recording();
  /// What a step's samples are called in the log of a batch: places in the files behind `train`. `test` is
  /// where the pictures of a classifier's mistakes are read from.
  void name_samples(std::shared_ptr<const Source> train, std::shared_ptr<const Source> test) {
    train_ = std::move(train);
    test_ = std::move(test);
  }
  /// What learning from a sample costs, where the task says so: speeds are then told in its words, too.
  void costs(std::optional<TrainingCost> cost) { cost_ = std::move(cost); }
  /// Opens this rank's logs in the run's folder, where it can be seen from here. `line` is the log's first.
  void open_logs(const std::filesystem::path& logs, const std::string& line);

  /// Steps are timed from now on; `at` is where the run is.
  void begin(const RunProgress& at);
  /// The step of `report` is over; `at` is where the run is.
  void step(StepReport report, const RunProgress& at);
  void evaluation(const Evaluation& evaluation, const Task& task, const RunProgress& at);
  /// What the samples of `epoch` came to as they were trained on, before the report of its last step.
  void trained(std::int64_t epoch, const std::optional<Evaluation>& found);
  /// The first training pictures, for the report.
  void fed(FedPictures pictures);
  /// What the task showed of the network after the last step.
  void shown(const std::string& text, const RunProgress& at);
  /// Where the time of all ranks went in the steps up to `step`, and who is slow.
  void compared(std::int64_t step, const PhaseComparison& found);
  /// What this rank takes in the step after `at`. A step that a restart repeats is there more than once: of
  /// each step, the lines with the latest start count.
  void samples(std::span<const std::int64_t> indices, const RunProgress& at);
  /// Numbers of `step` are not finite: what this rank took in it is written to the logs.
  void bad_loss(std::int64_t step, double loss, const RunProgress& at);
  /// The samples this rank took in `step`; empty if that is too long ago.
  std::vector<std::int64_t> samples_of(std::int64_t step) const { return spikes_.samples_of(step); }
  /// The run goes back to an earlier step: rates and losses start over.
  void forget();
  /// Makes what was told so far durable, or gives up waiting: before a checkpoint is written, which should
  /// not be ahead of it. From any thread.
  void sync();
  /// What this rank does now, for its launcher.
  void state(WorkerState state);
  /// Of the newest checkpoint that is durable, where this rank makes them.
  void durable(std::optional<std::int64_t> step);
  /// How late the updates of all ranks were, for the summary.
  void delays(const std::optional<UpdateDelays>& delays) { delays_ = delays; }
  /// Shown by rank 0.
  void message(const std::string& text);
  /// Rank 0: begins to write summary.json and report.html, when the last checkpoint is durable. `status`:
  /// "finished", "stopped" or "diverged".
  void finish(const std::string& status, const RunProgress& at);
  /// Waits until all that was told is written, or until `deadline`; whether it is.
  bool wait(const Deadline& deadline) { return writer_.drain(deadline); }
  /// Whether something is still being written.
  bool busy() const { return !writer_.idle(); }
  /// Throws the first error that kept something from being written for good.
  void check() { writer_.check(); }

 private:
  struct Sinks;
  /// Of the steps of an epoch that this start makes.
  struct EpochSum {
    double losses = 0, seconds = 0;
    std::int64_t steps = 0, samples = 0;
    std::optional<Evaluation> trained = {};  ///< of its samples
  };

  /// `entry` is written as soon as the disk allows; without the permit it is dropped.
  void post(BackgroundWriter::Entry entry);
  /// Points of curves.
  void post_points(std::vector<std::pair<std::string, double>> points, std::int64_t step, double time);
  void post_progress(const StepRecord& record, const RunProgress& at);
  void post_step(StepRecord record, const RunProgress& at);
  void post_evaluation(const Evaluation& evaluation, const RunProgress& at);
  void post_confusion(const Confusion& confusion, const Task& task, const RunProgress& at);
  void post_phases(std::int64_t step, const PhaseComparison& found);
  std::filesystem::path samples_path() const;
  void note_first_step();
  void tell_status(const StepRecord& record, const RunProgress& at);
  void dump_batch(std::int64_t step, double loss, std::optional<double> median, const RunProgress& at);
  void end_epoch(const StepRecord& last, TimePoint now);
  /// The line, and a shorter one for narrow terminals.
  std::pair<std::string, std::string> epoch_line(std::int64_t epoch, const std::string& tests);
  void post_result(const std::pair<std::string, std::string>& texts);
  MemoryUse memory_use() const;
  std::optional<ModelSpeed> speed(const RunProgress& at, double samples_per_second) const;
  RunSummary summarize(const std::string& status, const RunProgress& at) const;

  RunLoggerContext context_;
  std::unique_ptr<Sinks> sinks_;  ///< rank 0 only; written by the writer's thread
  std::filesystem::path logs_;    ///< empty where the run's folder cannot be seen from here
  UniqueFd samples_log_;          ///< open with --log-samples
  BackgroundWriter writer_;
  SpikeDetector spikes_;
  std::shared_ptr<const Source> train_, test_;  ///< null: not told
  std::optional<TrainingCost> cost_;
  TimePoint started_, rate_since_, epoch_since_;
  bool epoch_whole_ = true;  ///< this start trains all of the current epoch
  std::int64_t rate_samples_ = 0, samples_done_ = 0;
  double samples_per_second_ = 0, last_loss_ = 0;
  std::int64_t durable_step_ = -1;        ///< that the launcher knows of
  Duration clock_total_{}, clock_own_{};  ///< of the clock at the step before
  std::optional<double> seconds_to_first_step_;
  std::optional<Evaluation> evaluation_;
  BestEvaluation best_;
  EpochSum epoch_;                              ///< of the current one
  std::map<std::int64_t, Evaluation> trained_;  ///< of epochs whose last step is not told yet
  std::optional<EpochSum> ended_;               ///< of the last one, of which nothing was told yet
  std::optional<UpdateDelays> delays_;
};

}  // namespace dtrain
