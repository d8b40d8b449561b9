// What strategies have in common of which every rank holds the whole network and the whole optimizer: state
// is rank 0's, handed to the others where they need it.
#pragma once

#include "parallel/strategy.h"

namespace dtrain {

class ReplicatedStrategy : public Strategy {
 public:
  /// Of as many as there are ranks.
  DataShare share() const noexcept override {
    return {context_.communicator.rank(), context_.communicator.size()};
  }
  bool holds_outputs() const noexcept override { return true; }
  bool in_step() const noexcept override { return true; }
  bool sharded() const noexcept override { return false; }

  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  void load(const SavedState& state, const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  /// Rank 0 has everything, the others nothing.
  StateParts save() override;
  StateParts replica() override;
  /// Parameters and the optimizer's state; running statistics are each rank's own.
  Replicas replicas() override;
  Module& module() noexcept override { return *network_; }
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }

 protected:
  explicit ReplicatedStrategy(const StrategyContext& context) : context_(context) {}

  Deadline patience() const { return Deadline::after(context_.patience); }
  /// Forward and backward of pass `i`; gradients add up to those that are in the network.
  void run_pass(Passes& passes, std::size_t i);
  /// The update by the gradients that are in the network.
  virtual void update();

  StrategyContext context_;
  GradientLimits limits_;
  GradScaler* scaler_ = nullptr;
  std::function<void()> before_update_;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace dtrain
