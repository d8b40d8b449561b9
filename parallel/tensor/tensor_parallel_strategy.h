// Tensor parallelism as a strategy: the ranks along one axis of a mesh share one network, whose layers are
// divided among them (layers.h); along the other axis another strategy shares the batches. A strategy inside
// a strategy.
#pragma once

#include <memory>
#include <optional>

#include "parallel/functional.h"
#include "parallel/layout/parameter_order.h"
#include "parallel/layout/ties.h"
#include "parallel/strategy.h"

namespace dtrain {

/// Where the inner strategy holds some parts of the network. Borrowed.
struct OtherParts {
  Communicator& stages;         ///< the ranks that hold the same slices of the others (PipelineLinks::stages)
  const Ties& ties;             ///< PipelineStrategy::ties
  const ParameterOrder& order;  ///< PipelineStrategy::order
};

class TensorParallelStrategy final : public Strategy {
 public:
  /// `context` is of all ranks. `group`: those that share this rank's network, in order. `inner` is given the
  /// divided network, and works among the ranks that hold the same slices; each batch goes to all of `group`.
  /// `inner` calls TrainingParts::before_update, and may have an optimizer of some parameters only, or of
  /// ranges of them (Strategy::ranges). The network that is built must be divided over `group` (SplitModule).
  TensorParallelStrategy(const StrategyContext& context, const RankGroup& group,
                         std::unique_ptr<Strategy> inner, std::optional<OtherParts> others = std::nullopt);

  std::string_view name() const noexcept override { return "tensor parallel"; }
  DataShare share() const noexcept override { return inner_->share(); }
  /// On the first rank of each group that has any.
  bool holds_outputs() const noexcept override {
    return group_.communicator.rank() == 0 && inner_->holds_outputs();
  }
  bool in_step() const noexcept override { return true; }

  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// Every rank writes slices: the files hold the undivided network, at any width.
  bool sharded() const noexcept override { return true; }
  bool computes_together() const noexcept override { return inner_->computes_together(); }
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(Passes& passes, Exchange exchange) override { inner_->step(passes, exchange); }
  /// None: collectives inside a pass wait for the peers.
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override { inner_->settle(deadline); }
  bool settling_counts() const noexcept override { return inner_->settling_counts(); }
  Tensors evaluate(const Tensors& inputs) override;
  StateParts save() override;
  Replicas replicas() override { return inner_->replicas(); }
  Module& module() noexcept override { return inner_->module(); }
  Optimizer* optimizer() noexcept override { return inner_->optimizer(); }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }
  std::string proposal() const override { return inner_->proposal(); }
  std::map<std::string, std::string> choices() const override { return inner_->choices(); }
  std::string account(std::int64_t steps) const override { return inner_->account(steps); }

 private:
  /// What concerns all slices together. `guard` may be null.
  void before_update(const UpdateGuard* guard);
  void limit();
  /// Whether the inner strategy's ranks have the optimizer's state of some parameters each.
  bool deals();
  StateParts save_ranges();
  void load_remembered(const TensorFiles& files);
  std::vector<SavedPart> remembered_here();
  /// Adds numbers up over a group.
  void add_up(const Tensor& numbers, Communicator& ranks);
  Deadline patience() const { return Deadline::after(context_.patience); }

  StrategyContext context_;
  RankGroup group_;
  std::unique_ptr<Strategy> inner_;
  std::optional<OtherParts> others_;
  ParameterOrder order_;  ///< where all of the network is here
  NamedTensors updated_;  ///< those of the optimizer
  GradientLimits limits_;
};

}  // namespace dtrain
