// How the ranks that hold the same of a network share its gradients and its update: all-reduced on each of
// them, added up along one tree, in ranges of which each has one (ZeRO), or parameters now and then (local
// SGD). A schedule says when forward and backward run; the network may be whole, slices or a stage.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/layout/parameter_layout.h"
#include "parallel/layout/replicas.h"
#include "parallel/schedule/pass_hooks.h"
#include "parallel/strategy.h"
#include "parallel/sync/hooks/comm_hook.h"
#include "parallel/sync/sharded/optimizer_partition.h"

namespace dtrain {

class ShardedParameters;

/// Which rank has the optimizer's state and updates with it.
enum class OptimizerState {
  everywhere,   ///< every rank, all of it
  partitioned,  ///< of each parameter one rank, which hands what it updates to the others
                ///< (OptimizerPartition)
};

/// Where sets of parameters get their gradients in backward passes of their own: how many sets there are, and
/// the number, from 0, of a parameter's.
struct PassKinds {
  std::size_t count = 1;
  std::function<std::size_t(const std::string& parameter)> of = {};  ///< may be empty for one set
};

/// What is shared; borrowed, and there as long as the sync.
struct SharedNetwork {
  Module& network;
  /// The records of the network's parameters and buffers, by all names that they have. A sync that gives each
  /// rank ranges of them writes these there.
  std::vector<ParameterLayout>& parameters;
  PassKinds passes = {};
  /// The parameters in the order in which an optimizer of all has them.
  std::function<NamedTensors()> in_order = {};
  bool is_scaled = false;  ///< losses are, against underflow
};

/// One rank's. Used by one thread; the ranks that share call it alike. The defaults are those of a network
/// that every rank has whole.
class GradientSync : public PassHooks {
 public:
  /// The ranks that hold the same as this one; borrowed.
  Communicator& dp_group() const noexcept { return context_.communicator; }
  /// Of the batch.
  const DataShare& share() const noexcept { return share_; }
  bool partitions_state() const noexcept { return state_ == OptimizerState::partitioned; }
  /// What exchanges gradients, where it remembers something from step to step; else null.
  CommHook* hook() const noexcept { return hook_.get(); }
  /// Whether anything but the optimizer's state is kept from step to step. After sync_state() state() gives
  /// it, each tensor by the name of a parameter or of its own; load_state() takes it over before begin().
  virtual bool is_stateful() const noexcept { return hook_ != nullptr; }
  virtual NamedTensors state() const { return hook_ ? hook_->state() : NamedTensors(); }
  virtual void load_state(NamedTensors state) {
    if (hook_) hook_->load(std::move(state));
  }
  /// Whether ranks have the same gradients after finish(), so that none need say what it found in them.
  bool equal_gradients() const noexcept { return equal_gradients_; }
  /// Whether a step that does not exchange can be followed by an update.
  virtual bool keeps_gradients() const noexcept { return true; }
  /// Where each rank updates ranges of the parameters; else null.
  virtual ShardedParameters* shards() noexcept { return nullptr; }
  /// Whether a step waits for nothing and can be recorded.
  virtual bool recordable() const noexcept { return false; }
  /// As Strategy::sync_state_alters_steps.
  virtual bool sync_state_alters_steps() const noexcept { return hook_ != nullptr; }

  /// Once, when the network is there.
  virtual void attach(const SharedNetwork& shared);
  /// What this rank's optimizer is to have.
  virtual NamedTensors updated() const;
  /// The tensors whose grad() is a shared gradient after finish(), of an `optimizer` of updated().
  NamedTensors shared(const Optimizer& optimizer) const;
  /// Collective. Ranks become equal; from now on gradients are shared.
  virtual void begin(const Deadline& deadline);
  /// A step of so many passes begins.
  virtual void begin_step(std::size_t passes);
  /// After the last backward of a step that exchanges: shared() have their gradients.
  virtual void finish(const Deadline& /*deadline*/) {}
  /// After the last backward of one that does not.
  virtual void drop_step() {}
  /// After the update of updated(): the network has the new values. `exchange`: in this step.
  virtual void take_update(bool exchange, const Deadline& deadline);
  /// Collective. Makes equal what ranks may hold differently between steps; `state` is what updates keep: the
  /// optimizer's, and averages of weights.
  virtual void sync_state(const NamedTensors& state, const Deadline& deadline);
  /// The state that ranks replicate; `state` as in sync_state().
  virtual Replicas replicas(const NamedTensors& state);
  /// The traffic of a step, for measuring.
  virtual void exchange_alone(const Deadline& deadline) = 0;

 protected:
  /// `context` has the ranks that hold the same.
  explicit GradientSync(const StrategyContext& context, OptimizerState state = OptimizerState::everywhere)
      : context_(context), share_{context.communicator.rank(), context.communicator.size()}, state_(state) {}

  Module& network() const noexcept { return *network_; }

  StrategyContext context_;
  DataShare share_;
  OptimizerState state_;
  std::shared_ptr<CommHook> hook_;
  bool equal_gradients_ = true;

 private:
  Module* network_ = nullptr;
  std::optional<OptimizerPartition> partition_;
};

/// In the place of `planned`, for a stage all of whose parameters are frozen: ranks share nothing but what
/// passes leave behind.
std::unique_ptr<GradientSync> share_frozen(const GradientSync& planned);

/// Gradients are all-reduced when all of them are there, one by one: for a schedule that calls no hooks.
std::unique_ptr<GradientSync> all_reduce_afterwards(const StrategyContext& context, OptimizerState state);

}  // namespace dtrain
