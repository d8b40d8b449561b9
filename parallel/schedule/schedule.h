// When forward and backward of a step run, and on which part of the network: one pass after the other, or
// micro-batches through the stages of a pipeline. A schedule knows no other rank than those of other stages;
// what shares gradients hooks itself in.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "parallel/layout/network_layout.h"
#include "parallel/schedule/pass_hooks.h"
#include "parallel/strategy.h"

namespace dtrain {

/// One rank's. Used by one thread.
class Schedule {
 public:
  virtual ~Schedule() = default;

  /// Collective. This rank's part of the network; borrowed until the schedule's end. Throws UsageError for a
  /// network that does not learn.
  virtual std::unique_ptr<Module> build(const ModelFactory& factory, PassHooks& hooks,
                                        const Deadline& deadline) = 0;
  /// Forward and backward of all passes, and all that stages owe each other: gradients are in the network.
  virtual void run(MicroBatches& passes, PassHooks& hooks, bool exchange) = 0;
  /// The outputs, empty where holds_outputs() is false. Called without gradients.
  virtual Tensors evaluate(const Tensors& inputs, PassHooks& hooks) = 0;
  virtual bool holds_outputs() const noexcept { return true; }
  /// Whether a run waits for nothing, and can be recorded.
  virtual bool recordable() const noexcept { return false; }
  /// The stages, and after build() what this one has of the network, which NetworkLayout takes over; null
  /// where the network is whole.
  virtual StageLayout* stages() noexcept { return nullptr; }
  /// After build(): the set of parameters, from 0, that gets its gradients in passes of its own.
  virtual std::size_t chunk_of(const std::string& /*parameter*/) const { return 0; }
  virtual std::size_t chunks() const noexcept { return 1; }
  /// As Strategy::plan and Strategy::tuned_config.
  virtual std::string plan() const { return {}; }
  virtual std::map<std::string, std::string> tuned_config() const { return {}; }
};

/// Throws UsageError for a network without a parameter that learns.
void check_learns(const Module& network);

}  // namespace dtrain
