// One training step of one worker: batches come in, the task makes losses of them, the strategy shares the
// work, and what the step has to tell is read without stopping the device. Knows neither the task nor the
// strategy by name; the trainer above it knows epochs, checkpoints and when to stop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "parallel/strategy.h"
#include "runtime/autograd/autocast.h"
#include "runtime/base/error.h"
#include "runtime/nn/dropout.h"
#include "training/engine/batch_feed.h"
#include "training/engine/step_graph.h"
#include "training/engine/step_reports.h"
#include "training/engine/train_metrics.h"
#include "training/options/train_config.h"
#include "training/task.h"

namespace dtrain {

/// Where training showed numbers that are not finite.
enum class NotFinite {
  loss,              ///< of a step
  gradients,         ///< of a step with a finite loss
  scaled_gradients,  ///< the same, at the smallest loss scale
  state,             ///< parameters or the optimizer's state, after a step
  evaluation,        ///< the loss of an evaluation, after a step
};

/// Training cannot continue: its numbers are not finite. The same on every rank that steps with this one.
class LossError : public Error {
 public:
  /// `step` counts from 1; `loss` is the step's.
  LossError(const std::string& message, NotFinite what, std::int64_t step, double loss)
      : Error(message), what_(what), step_(step), loss_(loss) {}
  NotFinite where() const noexcept { return what_; }
  std::int64_t step() const noexcept { return step_; }
  double loss() const noexcept { return loss_; }

 private:
  NotFinite what_;
  std::int64_t step_;
  double loss_;
};

struct EngineOptions {
  Precision precision = Precision::fp32;
  GraphUse graphs = GraphUse::automatic;
  Duration patience{};  ///< bounds each wait for a batch, and for the peers within a step
  StepTimer timer;
  bool train_metrics = false;  ///< whether take_train_metrics() has any; steps are not recorded then
};

/// What a step is to do.
struct StepPlan {
  StepReport report;       ///< as it is queued
  std::size_t passes = 1;  ///< of this rank
  /// Which of the run's shapes its batches have, so that it may be recorded; nothing: one that few steps
  /// have.
  std::optional<int> shape = 0;
  /// Whether its losses and gradients are computed twice and must be the same bits (RepeatedPasses); it is
  /// not recorded.
  bool check_compute = false;
};

/// Where a step's batches come from, one a pass.
using BatchSupply = std::function<Batch()>;

/// Used by one thread. Every rank constructs it and calls it alike, as far as the strategy's in_step() says
/// so.
class Engine {
 public:
  /// Borrows `task`, `strategy` and `communicator` (of all workers), which outlive it. Throws UsageError for
  /// graphs that are `on` where the device has none.
  Engine(const Task& task, Strategy& strategy, Communicator& communicator,
         const std::shared_ptr<Device>& device, const EngineOptions& options, Log& log);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Hands the strategy the factories, with the guard or scaler that the precision asks for; `fields` are
  /// what the samples that are trained on are made of. Throws as Strategy::prepare, and UsageError for graphs
  /// that are `on` where the steps cannot be recorded.
  void prepare(ModelFactory factory, std::span<const Field> fields, const Deadline& deadline);
  Strategy& strategy() noexcept { return strategy_; }
  /// Null without loss scaling.
  GradScaler* scaler() const noexcept { return scaler_; }

  /// The network or the optimizer has other values, and perhaps other memory, than the steps before left
  /// behind: what was recorded of them is recorded again, and samples that are repeated count once.
  void forget_recordings() {
    graphs_.clear();
    if (train_metrics_) train_metrics_->forget();
  }

  /// Runs one step, or queues it where the device runs ahead; its report can be taken later. Gradients that
  /// are not finite change nothing. Where the device does not run ahead the loss is known before the update,
  /// and one that is not finite is a LossError before anything is changed. Throws ComputeError where a
  /// computation that is checked has two results; nothing is changed then, either.
  void step(const StepPlan& plan, const BatchSupply& supply);
  /// The same without exchanging anything and without a report: for measuring.
  void step_alone(const StepPlan& plan, const BatchSupply& supply);

  bool runs_ahead() const noexcept { return device_->runs_ahead(); }
  /// Steps whose reports were not taken.
  std::size_t reports_waiting() const noexcept { return reports_->waiting(); }
  /// Whether take_report() would not wait.
  bool report_ready() { return reports_->ready(); }
  /// The oldest report. Throws LossError when its loss is not finite, its gradients are not and no smaller
  /// loss scale can help, or an update before it was not, and as StepReports::take.
  StepReport take_report();

  /// Collective. The task's metrics over the samples of all ranks that were trained on since the last call,
  /// each by the weights of its step; nothing without EngineOptions::train_metrics.
  std::optional<Evaluation> take_train_metrics();

  /// Collective, unless ranks do not step together: then this one alone. All of `source`, in batches of
  /// `batch_size`, each sample once over all ranks.
  Evaluation evaluate(const std::shared_ptr<const Source>& source, std::int64_t batch_size);
  /// Collective, as evaluate(). What the task shows of the network as it is, by `samples`, the `number`-th
  /// time. Steps that follow are what they would be without.
  std::string show(const std::shared_ptr<const Source>& samples, std::uint64_t number);

 private:
  class StepPasses;

  void run(const StepPlan& plan, MicroBatches& passes, Exchange exchange);
  /// The task's phases with where the run is; empty where a step has one.
  std::vector<ModelPhase> model_phases() const;
  /// Gives the host memory that must stay until the step is over.
  std::vector<std::shared_ptr<void>> replay(StepGraph& graph, const StepPlan& plan,
                                            const BatchSupply& supply);
  Tensor loss_of(const Tensors& outputs, const BatchTensors& batch, std::size_t phase) const;
  StepGraph* graph_for(const StepPlan& plan, int& key);
  /// Collective, as evaluate(). The network as it is to be used, with averaged weights where there are any;
  /// and as it is trained.
  void begin_evaluation();
  void end_evaluation();
  void check_loss(double loss, bool corrupted, const StepRecord& step) const;
  void check_gradients(const StepReport& report);
  /// Keys dropout's masks by the step and by the samples `indices` that the rows of the next pass are.
  void key_masks(std::int64_t step, std::span<const std::int64_t> indices);
  Deadline deadline() const { return Deadline::after(options_.patience); }

  const Task& task_;
  Strategy& strategy_;
  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  EngineOptions options_;
  bool units_vary_ = false;              ///< Task::units_vary()
  std::unique_ptr<Communicator> alone_;  ///< what reports go over where ranks do not step together
  LowPrecisionWeights low_weights_;
  std::vector<std::shared_ptr<DropoutKey>> dropouts_;
  std::unique_ptr<UpdateGuard> guard_;
  const std::vector<StepPhase> phases_;  ///< the task's
  const StepLoss step_loss_;
  const GroupLoss group_loss_;
  const AfterUpdate after_update_;
  TrainStep at_;                    ///< of the step that is being computed
  GradScaler* scaler_;              ///< the guard, where losses are scaled; else null
  int overflows_at_the_least_ = 0;  ///< in a row
  BatchFeed feed_;
  std::unique_ptr<StepReports> reports_;
  std::unique_ptr<TrainMetrics> train_metrics_;  ///< null: nobody asked
  std::map<int, StepGraph> graphs_;              ///< by the strategy's graph_key()
  int recorded_shape_ = 0;                       ///< StepPlan::shape of their steps
};

}  // namespace dtrain
