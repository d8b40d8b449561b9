// DiLoCo (Douillard et al. 2023): groups of ranks take H steps on their own, each group with its optimizer's
// state cut into ranges (ZeRO). How far the groups went, on average, is then the gradient of one outer step:
// SGD with Nesterov momentum.
#pragma once

#include <memory>
#include <utility>

#include "parallel/sync/average.h"
#include "parallel/sync/sharded/sharded_sync.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/optim/sgd.h"

namespace dtrain {

struct OuterOptions {
  std::int64_t every = 1;  ///< inner steps between two outer ones
  double lr = 0.7;
  double momentum = 0.9;  ///< 0: none; with lr 1 parameters are averaged, as in local SGD
};

/// An outer step follows every `every` inner ones, and sync_state() takes one before evaluating and saving,
/// and averages the groups' inner state: what is saved is one network, one inner state and the outer
/// momentum. Of the elements that it updates each rank keeps the weights of the last outer step and the outer
/// momentum, 8 bytes each. Groups of one rank: every rank has an optimizer of its own.
class DilocoSync final : public ShardedSync {
 public:
  /// `groups`: each has a replica of the network; without a replicate_group there is one. Throws UsageError
  /// for `every` below 1.
  DilocoSync(const StrategyContext& context, const ShardOptions& shard, const ShardGroups& groups,
             const OuterOptions& outer)
      : ShardedSync(context, without_average(shard), groups), groups_(groups), options_(outer) {
    if (outer.every < 1) {
      throw UsageError("DiLoCo: expected an outer step after 1 inner step or more, got " +
                       std::to_string(outer.every));
    }
  }

  bool sync_state_alters_steps() const noexcept override { return true; }
  bool is_stateful() const noexcept override { return true; }
  NamedTensors state() const override { return outer_->named_state(); }
  void load_state(NamedTensors state) override { outer_->load_state(state); }

  /// Throws UsageError for loss scaling, whose overflow each group would see alone.
  void attach(const SharedNetwork& shared) override {
    if (shared.is_scaled) {
      throw UsageError(
          "DiLoCo: expected float32 or bfloat16, got float16, whose loss scaling would differ among the "
          "groups");
    }
    ShardedSync::attach(shared);
    NamedTensors weights;
    for (const auto& [name, inner] : updated()) {
      weights.emplace_back(name, inner.detach().clone());
      weights.back().second.set_requires_grad(true);
    }
    outer_ = std::make_unique<Sgd>(
        std::move(weights),
        SgdOptions{.lr = options_.lr, .momentum = options_.momentum, .nesterov = options_.momentum > 0});
  }
  void begin(const Deadline& deadline) override {
    ShardedSync::begin(deadline);
    copy(updated(), outer_->parameters());
  }
  void take_update(bool exchange, const Deadline& deadline) override {
    if (exchange && ++since_ == options_.every) outer_step(deadline);
    ShardedSync::take_update(exchange, deadline);
  }
  void sync_state(const NamedTensors& state, const Deadline& deadline) override {
    if (since_ > 0) {
      outer_step(deadline);
      ShardedSync::take_update(true, deadline);
    }
    if (groups_.replicate_group != nullptr) average(floating(state), *groups_.replicate_group, deadline);
    ShardedSync::sync_state(state, deadline);
  }

 private:
  static ShardOptions without_average(ShardOptions shard) {
    shard.averages_replicas = false;
    return shard;
  }
  static void copy(const NamedTensors& from, const NamedTensors& to) {
    const NoGrad no_grad;
    for (std::size_t i = 0; i < from.size(); ++i) to[i].second.detach().copy_from(from[i].second.detach());
  }

  // All ranks of a replicate_group own the same ranges.
  void outer_step(const Deadline& deadline) {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    const NoGrad no_grad;
    since_ = 0;
    const NamedTensors& weights = outer_->parameters();
    NamedTensors moved;
    for (std::size_t i = 0; const auto& [name, inner] : updated())
      moved.emplace_back("outer gradient of " + name, sub(weights[i++].second.detach(), inner.detach()));
    if (groups_.replicate_group != nullptr) average(moved, *groups_.replicate_group, deadline);
    for (std::size_t i = 0; i < moved.size(); ++i) Tensor(weights[i].second).set_grad(moved[i].second);
    outer_->step();
    copy(weights, updated());
  }

  ShardGroups groups_;
  OuterOptions options_;
  std::unique_ptr<Sgd> outer_;  ///< of the weights that the last outer step left
  std::int64_t since_ = 0;      ///< inner steps
};

}  // namespace dtrain
