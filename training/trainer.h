// The training loop of one worker: what every rank does, step by step, the same on every device and backend.
#pragma once

#include <fstream>
#include <memory>
#include <optional>

#include "collectives/communicator.h"
#include "parallel/data/data_parallel.h"
#include "runtime/autograd/autocast.h"
#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "runtime/data/step_sampler.h"
#include "runtime/metrics/step_clock.h"
#include "runtime/optim/grad_scaler.h"
#include "runtime/optim/optimizer.h"
#include "training/engine/batch_feed.h"
#include "training/engine/step_graph.h"
#include "training/engine/step_reports.h"
#include "training/run/run_recorder.h"
#include "training/run/tracer.h"
#include "training/run/worker_log.h"
#include "training/start/stop_signal.h"

namespace dtrain {

/// What a trainer borrows; all of it outlives the trainer.
struct TrainerEnvironment {
  Communicator& communicator;
  std::shared_ptr<Device> device;
  const Options& options;
  const Environment& environment;
  const StopSignal& stop_signal;
  WorkerLog& log;
  Tracer& tracer;
};

class Trainer {
 public:
  /// Opens the data, draws the initial weights, resumes where --resume says. Every rank must construct it
  /// together. Throws every kind of Error before the first step.
  Trainer(const Recipe& recipe, const TrainerEnvironment& environment);

  /// Trains to the end, or until a stop signal: then a checkpoint is written and the result is
  /// ExitCode::requeue. Throws Error when the loss is not finite (on every rank, at the same place),
  /// PeerError when a peer is lost.
  ExitCode run();

 private:
  /// A snapshot with the tensors its views look at; some of them exist for this purpose only.
  struct OwnedSnapshot {
    NamedTensors model, optimizer;
    Snapshot snapshot;
  };

  void open_data();
  void apply_layer_options();
  void resume();
  void count_steps();
  void open_log();
  void start_trace();
  void start_recorder(std::unique_ptr<CheckpointStore> locked, const std::optional<Checkpoint>& checkpoint);

  bool finished() const;
  ExitCode run_all();
  bool run_epoch();
  void step();
  void run_step(std::vector<std::shared_ptr<void>>& kept);
  void replay_step(std::vector<std::shared_ptr<void>>& kept);
  Batch next_batch();
  BatchTensors copy_to_device(const Batch& batch);
  /// The mean loss of the batch, which counts `weight` in the step's.
  Tensor forward(const BatchTensors& batch, double weight);
  void run_pass(const BatchTensors& batch, bool last_pass);
  void backward(const Tensor& loss, double weight, bool last_pass);
  void finish_gradients();
  void update_parameters();
  void take_reports(std::size_t left);
  void take_report();
  void take_ready_reports() noexcept;
  void after_step(const StepReport& report);
  void log_samples(std::span<const std::int64_t> indices);
  void check_loss(double loss) const;
  void check_late_loss(const StepReport& report) const;
  void note_first_step();
  void evaluate_now();
  void save_checkpoint();
  void stop_at_signal();
  RunSummary summarize(const std::string& status) const;
  OwnedSnapshot snapshot() const;
  MemoryUse memory_use() const;
  Progress progress(const StepReport& report) const;
  Deadline deadline() const { return Deadline::after(recipe_.collective_timeout); }
  /// While training is set up ranks differ by more than in a step: rank 0 may read a checkpoint.
  Deadline start_deadline() const { return Deadline::after(recipe_.connect_timeout); }
  /// A span of the training thread while it lives.
  SpanScope phase(std::string_view name) const { return {env_.tracer.spans(), name, "phase"}; }
  bool is_root() const { return env_.communicator.rank() == 0; }

  Recipe recipe_;
  TrainerEnvironment env_;
  std::shared_ptr<const Source> train_data_, test_data_;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;
  LowPrecisionWeights low_weights_;
  std::unique_ptr<GradScaler> scaler_;  ///< fp16 only
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<BatchFeed> feed_;
  std::unique_ptr<StepReports> reports_;
  std::unique_ptr<StepGraph> graph_;  ///< null where steps run as they are
  std::unique_ptr<StepSampler> sampler_;
  std::unique_ptr<Loader> loader_;
  std::ofstream samples_log_;              ///< open with --log-samples
  std::unique_ptr<RunRecorder> recorder_;  ///< rank 0 only
  LrSchedule schedule_;
  std::string run_dir_;
  std::string start_id_;  ///< of this start of the run, the same on every rank
  std::string generator_state_;

  std::int64_t total_steps_ = 0;
  std::int64_t step_ = 0, epoch_ = 0;  ///< finished steps; where the next one is
  std::int64_t position_ = 0;          ///< samples of the epoch that all ranks together have taken
  std::int64_t resumed_from_ = 0;
  std::optional<std::int64_t> saved_step_, evaluated_step_;
  StepClock clock_;
  TimePoint started_;
  std::optional<double> seconds_to_first_step_;
  std::int64_t samples_done_ = 0;
  double samples_per_second_ = 0, last_loss_ = 0;
  TimePoint rate_since_;
  std::int64_t rate_samples_ = 0;
  std::optional<Evaluation> evaluation_;
  bool stop_asked_ = false;  ///< some rank was told to stop; known to all at the same place
};

}  // namespace dtrain
