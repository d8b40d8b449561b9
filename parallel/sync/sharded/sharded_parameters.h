// Which ranges of a network's parameters a rank updates, and what travels between ranks for it: sharded data
// parallelism (ZeRO) without the passes. A strategy says when forward and backward run, and the layout saves.
//
//     ShardedParameters shards({ranks}, {.stage = ShardStage::gradients});
//     auto network = shards.build(make_network);
//     std::vector<ParameterLayout> parameters = layouts_of(*network);
//     shards.own(*network, parameters);
//     auto optimizer = make_sgd(shards.owned());
//     shards.begin(ranks, deadline);
//     …
//     shards.begin_step();
//     shards.begin_use(ParameterUse::forward);      // loss = …
//     shards.begin_use(ParameterUse::backward);     // loss.backward()
//     shards.finish_pass();
//     shards.finish_step();                         // owned() have their gradients
//     optimizer->step();
//     shards.take_update();
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/layout/replicas.h"
#include "parallel/sync/gradient_sync.h"
#include "parallel/sync/sharded/fully_sharded_parameters.h"
#include "parallel/sync/sharded/shard_exchange.h"
#include "parallel/sync/used_parameters.h"

namespace dtrain {

/// The ranks that have a part each and, where these are not all, those that have the same part (hybrid
/// sharding). Borrowed. Every rank is in one group of each kind; all of the first kind are of one size.
struct ShardGroups {
  Communicator& shard_group;
  Communicator* replicate_group = nullptr;
};

/// One rank's. Used by one thread; ranks call it alike. Outlives the network that it builds. After a
/// PeerError it is as dead as its communicators.
class ShardedParameters {
 public:
  ShardedParameters(const ShardGroups& groups, const ShardOptions& options);

  /// What `make` makes. With stage parameters each module is split as soon as it is complete, so that the
  /// network is never whole; what looks at it afterwards gets it whole for a moment.
  std::unique_ptr<Module> build(const std::function<std::unique_ptr<Module>()>& make);
  /// Shares out the parameters of `network`, and writes this rank's ranges into `parameters`, their records
  /// (both borrowed): of those that learn what it updates; of frozen ones, which nobody updates, what it
  /// saves. Throws UsageError on ranks that would own nothing, for a network that does not learn, and for
  /// parameters that cannot be cut.
  void own(Module& network, std::vector<ParameterLayout>& parameters, const PassKinds& passes = {});

  /// The optimizer's: this rank's elements of each parameter that it owns any of, flat, by the parameter's
  /// name.
  NamedTensors owned() const;
  const ShardGroups& groups() const noexcept { return groups_; }
  /// Whether parameters come and go: each look at one is then collective.
  bool shards_parameters() const noexcept { return options_.stage == ShardStage::parameters; }

  /// Collective over `all` ranks that hold any part. Ranks become equal where they must be; from now on
  /// gradients are exchanged as they become final.
  void begin(Communicator& all, const Deadline& deadline);

  /// Forgets the gradients of the step before.
  void begin_step();
  /// What the network is used for next.
  void begin_use(ParameterUse use);
  /// Before a backward pass of set `pass`: whether its gradients are exchanged, or add up in the network.
  void begin_pass(bool exchange, std::size_t pass = 0);
  /// After a backward pass whose gradients are exchanged.
  void finish_pass();
  /// Collective over the ranks of both groups, after the last pass: owned() have the average gradients, but
  /// for parameters that no rank used.
  void finish_step();
  /// After the update of owned(): parameters have the new values.
  void take_update();
  /// Instead of finish_step() where nothing was exchanged: the gradients are forgotten.
  void drop_step();

  /// What ranks replicate: parameters that are whole on `all` of them, or the shards of replicas.
  Replicas replicas(Communicator& all) const;

  /// The traffic of one step, with zeros.
  void exchange_nothing(const Deadline& deadline) { exchange_->exchange_nothing(deadline); }
  /// For people, after `steps` steps: what a rank held that has parts only, of which `peak_bytes` is the
  /// most, and what moved.
  std::string describe_stats(std::size_t peak_bytes, std::int64_t steps) const;
  const ShardStats& stats() const noexcept { return exchange_->stats(); }
  /// With stage parameters; else null.
  const FullyShardedParameters* fully_sharded() const noexcept { return fully_sharded_.get(); }

 private:
  bool has_replicas() const noexcept {
    return groups_.replicate_group != nullptr && groups_.replicate_group->size() > 1;
  }
  /// Where buckets of fully sharded ones are to end.
  std::vector<std::size_t> last_of_buckets(const NamedTensors& whole) const;
  /// Writes `range` of `whole` into the records that have its memory.
  void cut(std::vector<ParameterLayout>& parameters, const NamedTensor& whole, const ShardRange& range);
  /// Which of fully_sharded()->parameters() has the memory of `whole`.
  std::size_t fully_sharded_of(const Tensor& whole) const;
  /// This rank's elements of what is sharded, frozen or not.
  NamedTensors shards_here() const;
  UsedParameters used_by_any() const;
  void average_replicas();
  NamedTensors whole_tensors() const;
  Deadline patience() const { return Deadline::after(options_.patience); }

  ShardGroups groups_;
  ShardOptions options_;
  std::unique_ptr<FullyShardedParameters> fully_sharded_;
  Module* network_ = nullptr;
  /// Records of those that learn, set by set, and of the frozen ones behind them.
  std::vector<const ParameterLayout*> parameters_;
  std::vector<Tensor> owned_;  ///< beside those that learn; undefined: owns nothing
  UsedParameters used_;        ///< beside `owned_`: by this rank, in this step
  std::unique_ptr<ShardExchange> exchange_;
};

}  // namespace dtrain
