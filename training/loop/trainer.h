// The course of a run on one worker: start, epochs of steps, evaluation, saving, end. What a step is, the
// engine knows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/layout/replicas.h"
#include "runtime/base/error.h"
#include "training/engine/engine.h"
#include "training/log/run_logger.h"
#include "training/log/run_progress.h"
#include "training/log/straggler_detector.h"
#include "training/loop/divergence.h"
#include "training/loop/finite_check.h"
#include "training/loop/metric_monitor.h"
#include "training/loop/run_checkpoints.h"
#include "training/loop/run_schedule.h"
#include "training/loop/trainer_environment.h"
#include "training/start/initial_network.h"
#include "training/training_data.h"

namespace dtrain {

class Trainer {
 public:
  /// Opens the data, draws the initial weights, resumes where `config` says. Every rank must construct it
  /// together. Throws every kind of Error before the first step.
  Trainer(const TrainConfig& config, const TrainerEnvironment& environment);

  /// Trains to the end, or until a stop signal: then a checkpoint is written and the result is
  /// ExitCode::requeue. Throws LossError when numbers are not finite (on every rank, at the same place),
  /// which says why and what to do, PeerError when a peer is lost.
  ExitCode run();

 private:
  // Start
  ModelFactory factory();
  void resume();
  void take_over(const TrainingState& state);
  void begin_start();
  void open_logs();
  void start_trace();

  // Epochs and steps
  ExitCode train();
  bool train_epoch();
  void end_epoch();
  void step();
  void take_reports(std::size_t left);
  void watch_over_peers();
  void compare_replicas();
  void go_back(const ReplicaError& why);

  // Evaluation and saving
  /// Nothing on ranks that do not step together and are not the first.
  std::optional<Evaluation> evaluate();
  void show_fed();
  void show();
  void save_checkpoint(bool ends = false);
  void write(RankState parts, bool ends);
  void save_snapshot();
  TrainingState state() const;

  // End
  void finish_with_others();
  void save_last();
  void finish(const std::string& status);
  void take_ready_reports() noexcept;
  void leave_nothing() noexcept;

  bool save_due() const {
    const std::int64_t every = config_.checkpoint_every.value_or(0);
    return save_requested_ || (every > 0 && progress_.step % every == 0);
  }
  bool is_root() const { return env_.communicator.rank() == 0; }
  Deadline deadline() const { return Deadline::after(config_.collective_timeout); }
  /// While training is set up ranks differ by more than in a step: rank 0 may read a checkpoint.
  Deadline start_deadline() const { return Deadline::after(config_.connect_timeout); }

  const TrainConfig config_;
  TrainerEnvironment env_;
  RunLogger logger_;
  TrainingData data_;
  RunSchedule schedule_;
  MetricMonitor monitor_;
  Engine engine_;
  FiniteCheck finite_;
  RunCheckpoints checkpoints_;
  DivergenceDetector divergence_;
  StragglerDetector stragglers_;
  RunProgress progress_;
  InitialNetwork initial_;          ///< its network is the strategy's
  std::int64_t went_back_to_ = -1;  ///< the step to which the run went back last
  bool stop_requested_ = false;     ///< some rank was told to stop; known to all at the same place
  bool save_requested_ = false;  ///< rank 0 can take a checkpoint that was postponed, or some rank was asked
                                 ///< for one; known likewise
};

}  // namespace dtrain
