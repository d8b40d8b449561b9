// The course of a run on one worker: epochs, evaluation, checkpoints, resuming, stopping. What a step is, the
// engine knows.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "parallel/layout/replicas.h"
#include "runtime/base/error.h"
#include "training/engine/engine.h"
#include "training/log/run_logger.h"
#include "training/log/straggler_detector.h"
#include "training/log/tracer.h"
#include "training/loop/checkpoint_saver.h"
#include "training/loop/finite_check.h"
#include "training/loop/peer_snapshots.h"
#include "training/start/stop_signal.h"
#include "training/training_data.h"

namespace dtrain {

/// What a trainer borrows; all of it outlives the trainer.
struct TrainerEnvironment {
  const Task& task;
  Strategy& strategy;
  Communicator& communicator;  ///< of all workers
  std::shared_ptr<Device> device;
  const Options& options;
  const Environment& environment;
  const StopSignal& stop_signal;
  WorkerLog& log;
  Tracer& tracer;
  StepClock& clock;                ///< the strategy's too
  WritePermit permit = {};         ///< without it nothing of the run is written, and training ends
  Communicator* copies = nullptr;  ///< of the workers that hold the same parts of the network; null: all
};

class Trainer {
 public:
  /// Opens the data, draws the initial weights, resumes where the recipe says. Every rank must construct it
  /// together. Throws every kind of Error before the first step.
  Trainer(const TrainConfig& recipe, const TrainerEnvironment& environment);

  /// Trains to the end, or until a stop signal: then a checkpoint is written and the result is
  /// ExitCode::requeue. Throws LossError when numbers are not finite (on every rank, at the same place),
  /// which says why and what to do, PeerError when a peer is lost.
  ExitCode run();

 private:
  TrainingParts parts();
  Tensors example(const std::shared_ptr<Device>& device, std::int64_t samples);
  void check_smallest_batch();
  std::map<std::string, std::string> chosen_before();
  void load_initial_weights(Module& network);
  void freeze_parameters(Module& network);
  void apply_layer_options(Module& network);
  void resume();
  void prepare_copies();
  void take_copy(std::optional<Checkpoint>& checkpoint, const std::exception_ptr& trouble);
  /// All ranks take over what rank 0 has found; false where that is nothing.
  bool share(std::optional<Checkpoint>& checkpoint);
  void take_over(const std::string& state_text, const Checkpoint* checkpoint);
  void begin_start(std::uint64_t bytes, const std::optional<Checkpoint>& checkpoint);
  void start_saving(std::unique_ptr<CheckpointStore> locked, const std::optional<Checkpoint>& checkpoint);
  void open_logs();
  void start_trace();
  void count_steps();
  void place_at(std::int64_t step);
  /// How far the run is, in steps of the schedule.
  double schedule_position() const;
  double next_lr() const { return schedule_.at(schedule_position()); }
  std::int64_t schedule_epoch() const;
  LrSchedule schedule_of_run() const;
  /// What resume_schedule() reads.
  void note_schedule(TrainingState& state) const;
  void resume_schedule(const TrainingState& state);

  /// From where the run is to its end or a stop signal.
  ExitCode run_on();
  /// Replicas differ: all ranks take over the newest state that was agreed on. Throws `why` where there is
  /// none, or where the run went back to it before.
  void go_back(const ReplicaError& why);
  bool run_epoch();
  void step();
  void take_reports(std::size_t left);
  void take_ready_reports() noexcept;
  void leave_nothing() noexcept;
  void evaluate();
  void watch_over_peers();
  void compare_replicas();
  void copy_to_memory();
  void save_checkpoint();
  void hand_over(StateParts parts);
  void save_last();
  void finish_with_others();
  void finish(const std::string& status);
  void stop_at_signal();
  /// What a checkpoint says of the run beside its tensors.
  TrainingState state() const;

  // ---- numbers that are not finite
  /// Collective where ranks step together. Throws LossError where `parts`, of this rank, or another rank's
  /// are not finite.
  void check_finite(const StateParts& parts);
  /// The same of what an evaluation found: throws LossError unless the data are to blame, which is reported.
  void check_finite(const Evaluation& found);
  /// Says when loss scaling is near its end.
  void watch_scale(const StepReport& report);
  void report_skipped();
  /// Likewise collective: records the end that `error` is. Returns it with its cause and what to do.
  LossError end_diverged(const LossError& error);
  /// The first sample with such a value among those that the ranks look at, in words; empty: there is none.
  std::string bad_sample(const std::shared_ptr<const Source>& source, std::vector<std::int64_t> own);
  std::string advice(const LossError& error, const std::string& sample) const;
  /// The step of the newest checkpoint that does not lead to `error`; -1: none, nothing: only rank 0 knows.
  std::optional<std::int64_t> refuse_what_leads_to(const LossError& error, bool data_are_bad);

  bool finished() const { return at_.step >= at_.total_steps; }
  /// The epoch that the last step was in.
  std::int64_t last_epoch() const { return at_.position == 0 && at_.epoch > 0 ? at_.epoch - 1 : at_.epoch; }
  bool is_root() const { return env_.communicator.rank() == 0; }
  Deadline deadline() const { return Deadline::after(recipe_.collective_timeout); }
  /// While training is set up ranks differ by more than in a step: rank 0 may read a checkpoint.
  Deadline start_deadline() const { return Deadline::after(recipe_.connect_timeout); }

  const TrainConfig recipe_;
  TrainerEnvironment env_;
  RunLogger logger_;
  FiniteCheck finite_;
  TrainingData data_;
  std::int64_t schedule_batch_;  ///< samples of the steps that it counts in: those of the run's first start
  LrSchedule schedule_;
  Engine engine_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<PeerSnapshots> copies_;  ///< null unless asked for
  StragglerDetector stragglers_;
  RunPosition at_;
  std::optional<std::filesystem::path>
      made_run_;                    ///< rank 0: the run's folder, where it was not there before
  std::string frozen_note_;         ///< what --freeze did; empty without
  std::string generator_state_;     ///< after the initial weights were drawn
  std::filesystem::path run_dir_;   ///< the run's folder, as rank 0 names it
  std::int64_t went_back_to_ = -1;  ///< the step to which the run went back last
  std::int64_t skipped_ = 0;        ///< steps of this start whose gradients overflowed
  bool small_scale_ = false;        ///< the loss scale fell below 1; said once
  bool stop_asked_ = false;         ///< some rank was told to stop; known to all at the same place
  bool save_asked_ = false;         ///< rank 0 can take a checkpoint that was put off; known likewise
};

}  // namespace dtrain
