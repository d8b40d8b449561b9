// The seam between a training step and the way ranks share it. The engine above knows no strategy by name,
// and a strategy knows no task: it is given factories for the network and the optimizer, and a step as
// passes. Decision 021 goes through what each form of parallelism asks of this page.
//
//     const auto strategy = make_data_parallel(context);          // parallel/forms.h
//     strategy->prepare({build, make_optimizer}, deadline);
//     strategy->begin(deadline);
//     while (…) strategy->step(passes);          // what Engine does
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/layout/replicas.h"
#include "parallel/layout/saved_tensors.h"
#include "parallel/server/delays.h"
#include "runtime/autograd/autocast.h"
#include "runtime/metrics/step_clock.h"
#include "runtime/nn/module.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/weight_average.h"

namespace dtrain {

/// Which samples of a step a rank computes: every size-th, from the rank-th. Ranks that hold parts of one
/// model (the stages of a pipeline, say) have the same share. A rank with several shares computes them one
/// after the other, each in passes of its own.
struct DataShare {
  int rank = 0;
  int size = 1;
  int parts = 1;  ///< how many consecutive shares are this rank's, from the rank-th

  /// Whether `share` is one of this rank's.
  bool has(int share) const noexcept { return share >= rank && share < rank + parts; }
};

class AsyncSteps;

/// A part of each step with parameters, a forward and an optimizer of its own (PhasedStrategy).
struct ModelPhase {
  std::string name;                     ///< "discriminator"
  std::vector<std::string> parameters;  ///< patterns of the names that it updates (names_that_match)
  /// In training, in the place of the network's own forward; may be empty.
  std::function<Tensors(Module& network, const Tensors& inputs)> forward = {};
  OptimizerFactory make_optimizer = {};  ///< empty: the model's
};

/// What is trained, as factories: a strategy decides where parameters exist, when, and whether whole.
struct ModelFactory {
  /// The network with its initial weights on `device`; every call draws the same weights.
  std::function<std::unique_ptr<Module>(const std::shared_ptr<Device>& device)> build;
  /// The optimizer of `parameters`, which may be all of the network's or a part.
  std::function<std::unique_ptr<Optimizer>(const NamedTensors& parameters)> make_optimizer;
  /// Loss scaling; null without. Borrowed, outlives the strategy.
  GradScaler* scaler = nullptr;
  /// Looks for gradients that are not finite where nothing is scaled; found() is told after the step. Null:
  /// nobody looks at them. Borrowed, outlives the strategy.
  UpdateGuard* guard = nullptr;
  /// For the whole network's gradients, wherever they are.
  GradientLimits limits = {};
  /// An average of the weights, for evaluation and in checkpoints; nothing: none.
  std::optional<AverageOptions> average = {};
  /// What the network may be fed to be measured: some samples, on `device`. May be empty.
  std::function<Tensors(const std::shared_ptr<Device>& device)> example = {};
  /// What passes compute in, where a strategy makes some of its own to measure them.
  Precision precision = Precision::fp32;
  /// Of a step of several, in their order; empty: a step is one.
  std::vector<ModelPhase> phases = {};
  /// Checkpoints have state of parameters that are another optimizer's.
  bool shares_checkpoint = false;
  /// Collective. What an earlier start of the same run chose (StrategyReport::tuned_config), the same on all
  /// ranks; empty: nothing. May be empty itself.
  std::function<std::map<std::string, std::string>()> earlier_config = {};

  /// What decides about each update: the scaler, where there is one. May be null.
  UpdateGuard* update_guard() const noexcept { return scaler != nullptr ? scaler : guard; }
};

/// What a strategy borrows; all of it outlives the strategy.
struct StrategyContext {
  Communicator& communicator;  ///< of all workers
  std::shared_ptr<Device> device;
  Duration patience;  ///< bounds each wait for the peers within a step
  StepTimer timer;
};

/// One step's work: forward and backward passes, each over a batch that only the caller knows.
class MicroBatches {
 public:
  virtual ~MicroBatches() = default;

  /// Of a step of several phases, before the passes of each: they are over the same batches.
  virtual void begin_phase(std::size_t /*phase*/) {}
  /// At least 1, and the same on all ranks of one share.
  virtual std::size_t count() const noexcept = 0;
  /// What the network is fed in pass `i`; fetches the batch when first asked for it. They are asked
  /// for in order.
  virtual Tensors inputs(std::size_t i) = 0;
  /// The mean loss [] of pass `i`, from the network's `outputs`; adds it to what the step reports.
  virtual Tensor loss(std::size_t i, const Tensors& outputs) = 0;
  /// What the loss of pass `i` counts in the step's: gradients of weight · loss, averaged over the shares,
  /// are those of the mean over the global batch.
  virtual double weight(std::size_t i) const = 0;

  /// Called once, after the last loss() and before its backward: what reports the loss may travel beside
  /// that.
  virtual void losses_done() = 0;
  /// Called once in a step that exchanges, when gradients are shared and before any update. Throws Error
  /// where the step must not happen (a loss that is not finite).
  virtual void gradients_done() = 0;

  /// Before the passes of a step that exchanges: true where they are to be computed twice and
  /// compared. All of them then run once between this and end_trial(), where nothing is reported and no
  /// gradient may be left behind, and after it as in any step.
  virtual bool begin_trial(Module& /*network*/) { return false; }
  virtual void end_trial() {}
};

/// A checkpoint to resume from, in a place that this process can read.
struct CheckpointFiles {
  const TensorFiles* model = nullptr;
  const TensorFiles* optimizer = nullptr;
};

/// Whether a step's gradients are exchanged. `no_sync` is for measuring: they stay this rank's.
enum class Exchange { all, no_sync };

/// What is known of a strategy before it is prepared.
struct StrategyTraits {
  std::string_view name;  ///< "data parallel"
  DataShare share = {};
  /// Whether evaluate() gives outputs here, and losses are computed here: one rank of each share.
  bool holds_outputs = true;
  /// Whether every rank takes each step with all others. Without (an asynchronous server) nothing in a step
  /// may be collective, and losses and stop requests stay this rank's.
  bool in_step = true;
  /// Whether ranks other than 0 hold unique state. Then every rank saves and loads its part, and all
  /// of them must see the run's folder; without, rank 0 alone does, and hands to the others what they need.
  bool sharded = false;
  /// Whether every rank holds the whole state after sync_state(), so that held() gives the same on each.
  bool replicated = true;
  /// Whether ranks of different shares compute each pass together, in evaluation too: all of them then
  /// evaluate the same number of times.
  bool computes_together = false;
  /// Whether later steps compute otherwise after sync_state(). It is then only called where the plan of the
  /// run says so, or a run that is repeated, or resumed, would come to other numbers.
  bool sync_state_alters_steps = false;
};

/// A strategy's description of itself, for people and for the run's records.
struct StrategyReport {
  /// Its own decisions, and how to set them. Lines without the last newline; on
  /// rank 0; empty: nothing.
  std::string plan = {};
  /// The same as option → value, on every rank: what a later start of the run finds in
  /// ModelFactory::earlier_config.
  std::map<std::string, std::string> tuned_config = {};
  /// What this rank held and what was moved in a step, beside a step's times. Lines without the last newline;
  /// empty: nothing to say.
  std::string stats = {};
};

/// One rank's. Calls come from one thread, in the order prepare, load (when resuming), begin, then steps.
/// "Collective" means every rank calls it alike; such a call throws PeerError when a peer is lost, after
/// which the strategy is dead.
class Strategy {
 public:
  virtual ~Strategy() = default;

  std::string_view name() const noexcept { return traits_.name; }
  DataShare share() const noexcept { return traits_.share; }
  bool holds_outputs() const noexcept { return traits_.holds_outputs; }
  bool in_step() const noexcept { return traits_.in_step; }
  bool sharded() const noexcept { return traits_.sharded; }
  bool replicated() const noexcept { return traits_.replicated; }
  bool computes_together() const noexcept { return traits_.computes_together; }
  bool sync_state_alters_steps() const noexcept { return traits_.sync_state_alters_steps; }
  const StrategyTraits& traits() const noexcept { return traits_; }

  /// Collective. Builds this rank's part of the network and of the optimizer, and attaches the guard.
  virtual void prepare(const ModelFactory& factory, const Deadline& deadline) = 0;
  /// Collective, between prepare() and begin(). Takes over what this rank needs of `state`, which is there on
  /// rank 0, and on every rank where sharded(). Throws UsageError for names, shapes or dtypes that do not
  /// fit, and what reading throws.
  virtual void load(const CheckpointFiles& state, const Deadline& deadline) = 0;
  /// Collective. Ranks become equal where they must be; from now on gradients are shared.
  virtual void begin(const Deadline& deadline) = 0;

  /// Collective (see in_step). One optimizer step: gradients of all passes, shared as they become final, and
  /// the update.
  virtual void step(MicroBatches& passes, Exchange exchange = Exchange::all) = 0;
  /// Steps with the same number do the same work on the device, so that one recording (Device::record) stands
  /// for all of them; nothing for a step that waits for the device or for peers and cannot be recorded.
  /// `step` counts from 1.
  virtual std::optional<int> graph_key(std::int64_t /*step*/) const { return std::nullopt; }

  /// Collective. Makes equal what ranks may hold differently between steps (running statistics, weights that
  /// are only averaged now and then): before evaluating and saving.
  virtual void sync_state(const Deadline& deadline) = 0;
  /// The network's outputs in evaluation, empty where holds_outputs() is false. All ranks of a share call it
  /// alike.
  virtual Tensors evaluate(const Tensors& inputs) = 0;
  /// What this rank has of the state: where sharded(), the parts of all ranks together are the whole, each
  /// element once; else all of it, on rank 0 and where replicated().
  virtual RankState held() = 0;
  /// What this rank saves; only rank 0 has any unless sharded().
  RankState save() { return sharded() || share().rank == 0 ? held() : RankState{}; }
  /// The whole state, of any rank, after sync_state(): equal to what rank 0 would save. Nothing where ranks
  /// hold different parts.
  RankState replica() { return replicated() ? held() : RankState{}; }
  /// The state that this rank and others replicate between steps, for checking; empty if there is none.
  virtual Replicas replicas() { return {}; }

  /// This rank's part of the network, after prepare().
  Module& module() noexcept { return *module_; }
  /// The optimizers of this rank's part, after prepare(): one a phase of a step.
  const std::vector<Optimizer*>& optimizers() const noexcept { return prepared_optimizers_; }
  /// The first of them, after prepare().
  Optimizer* optimizer() const noexcept {
    return prepared_optimizers_.empty() ? nullptr : prepared_optimizers_.front();
  }
  /// The averages of this rank's weights, after prepare(); null without. Every rank swaps them alike, after
  /// sync_state().
  WeightAverage* average() noexcept { return prepared_average_; }

  /// Collective. What a step exchanges, with nothing beside it: for measuring.
  virtual void exchange_alone(const Deadline& deadline) = 0;
  /// After prepare(), and after so many `steps`.
  virtual StrategyReport report(std::int64_t /*steps*/) const { return {}; }
  /// What ranks that do not step together have besides; null where in_step().
  virtual AsyncSteps* asynchronous() noexcept { return nullptr; }

 protected:
  explicit Strategy(const StrategyTraits& traits) : traits_(traits) {}
  /// In prepare(); all are borrowed.
  void set_prepared(Module& module, std::vector<Optimizer*> optimizers, WeightAverage* average = nullptr) {
    module_ = &module;
    prepared_optimizers_ = std::move(optimizers);
    prepared_average_ = average;
  }

  StrategyTraits traits_;

 private:
  Module* module_ = nullptr;
  std::vector<Optimizer*> prepared_optimizers_;
  WeightAverage* prepared_average_ = nullptr;
};

/// Ranks that do not step together.
class AsyncSteps {
 public:
  /// What a checkpoint says beside the tensors that the last save() gave.
  virtual std::map<std::string, std::string> notes() const = 0;
  /// Before load(): what notes() said in the checkpoint, on every rank.
  virtual void load_notes(const std::map<std::string, std::string>& notes) = 0;
  /// After begin(): steps of this rank that are part of the state from which it resumes.
  virtual std::int64_t own_steps() const = 0;
  /// After the last step. On rank 0 it waits until the others have made theirs, or are gone; then save()
  /// gives what all of them have done.
  virtual void finish(const Deadline& deadline) = 0;
  /// How old the weights of the last step were when it was applied.
  virtual PushDelay delay() const = 0;
  /// The same of all ranks' steps; on rank 0, else nothing.
  virtual std::optional<UpdateDelays> delays() = 0;

 protected:
  ~AsyncSteps() = default;
};

/// Backward from weight · loss, scaled where there is a `scaler` (may be null).
void start_backward(const Tensor& loss, double weight, const GradScaler* scaler);

/// Collective over `ranks`, after UpdateGuard::inspect(). Where one rank found a gradient that is not finite,
/// all of them have: ranks that hold different parts of a network skip a step, or end, together, and their
/// scales stay equal. Throws PeerError.
void agree_on_overflow(const UpdateGuard& guard, Communicator& ranks, const Deadline& deadline);

}  // namespace dtrain
