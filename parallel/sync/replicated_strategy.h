// What strategies have in common of which every rank holds the whole network. The optimizer's state is every
// rank's too, saved by rank 0 and handed to the others; or it is dealt out, parameter by parameter (decision
// 043).
#pragma once

#include <optional>

#include "parallel/strategy.h"
#include "parallel/sync/sharded/dealt_parameters.h"

namespace dtrain {

/// Who has the optimizer's state and updates by it.
enum class OptimizerState {
  everywhere,  ///< every rank, all of it
  dealt_out,   ///< of each parameter one rank, which hands what it updates to the others (DealtParameters)
};

class ReplicatedStrategy : public Strategy {
 public:
  /// Of as many as there are ranks.
  DataShare share() const noexcept override {
    return {context_.communicator.rank(), context_.communicator.size()};
  }
  bool holds_outputs() const noexcept override { return true; }
  bool in_step() const noexcept override { return true; }
  bool sharded() const noexcept override { return deals(); }

  /// Throws UsageError where state is dealt out among more ranks than there are parameters.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  void load(const SavedState& state, const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  /// Rank 0 has everything, the others nothing but state that is dealt out to them.
  StateParts save() override;
  StateParts replica() override;
  /// Parameters and the optimizer's state, unless it is held once; running statistics are each rank's own.
  Replicas replicas() override;
  Module& module() noexcept override { return *network_; }
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }

 protected:
  explicit ReplicatedStrategy(const StrategyContext& context,
                              OptimizerState state = OptimizerState::everywhere)
      : context_(context), state_(state) {}

  Deadline patience() const { return Deadline::after(context_.patience); }
  bool deals() const noexcept { return state_ == OptimizerState::dealt_out; }
  /// Forward and backward of pass `i`; gradients add up to those that are in the network.
  void run_pass(Passes& passes, std::size_t i);
  /// Of all parameters, in the order of an optimizer of all; undefined where there is none.
  std::vector<Tensor> gradients() const;
  /// The update by the gradients that are in the network.
  void update();

  StrategyContext context_;
  GradientLimits limits_;
  GradScaler* scaler_ = nullptr;
  UpdateGuard* guard_ = nullptr;
  std::function<void()> before_update_;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;

 private:
  /// The optimizer of what this rank updates.
  std::unique_ptr<Optimizer> make_optimizer(const TrainingParts& parts);
  /// All that is here.
  StateParts held();

  OptimizerState state_;
  std::optional<DealtParameters> dealt_;
};

}  // namespace dtrain
