// Pipeline parallelism: each rank of a group holds some consecutive parts of the network, a stage; the passes
// of a step are micro-batches that go through the stages one after the other, so that all of them have work.
// Across the groups the copies of a stage share batches as data parallelism does.
#pragma once

#include <memory>
#include <vector>

#include "parallel/data/data_parallel.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/stage_module.h"
#include "parallel/strategy.h"

namespace dtrain {

/// The groups that a rank of a pipeline talks in; borrowed. Activations and gradients go in opposite
/// directions at the same time, so each has a group of its own.
struct PipelineGroups {
  Communicator& activations;  ///< the stages of this pipeline, in order
  Communicator& gradients;    ///< the same ranks
  Communicator& copies;       ///< the ranks that hold this stage
};

/// Of all steps so far.
struct PipelineStats {
  Duration waiting{};       ///< for activations and gradients of other stages
  Duration steps{};         ///< from the first pass of a step to its last
  int most_alive = 0;       ///< micro-batches that waited for their backward at the same time
  std::uint64_t bytes = 0;  ///< sent to other stages
};

class PipelineStrategy final : public Strategy {
 public:
  PipelineStrategy(const StrategyContext& context, const PipelineGroups& groups, PipelineSchedule schedule);
  ~PipelineStrategy() override;

  std::string_view name() const noexcept override { return "pipeline"; }
  DataShare share() const noexcept override { return {groups_.copies.rank(), groups_.copies.size()}; }
  bool holds_outputs() const noexcept override { return is_last(); }
  bool in_step() const noexcept override { return true; }

  /// The whole network exists on each rank for a moment, for the sake of its initial weights. Throws
  /// UsageError for a network that is no chain (Chained) or has fewer parts than there are stages, a stage
  /// without parameters, and loss scaling.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// Every rank writes its stage.
  bool sharded() const noexcept override { return true; }
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  /// Every pass is a micro-batch.
  void step(Passes& passes, Exchange exchange) override;
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override { parallel_->sync_buffers(deadline); }
  Tensors evaluate(const Tensors& inputs) override;
  StateParts save() override;
  Replicas replicas() override;
  /// This rank's stage.
  Module& module() noexcept override { return *stage_; }
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }
  void exchange_alone(const Deadline& deadline) override;

  const PipelineStats& stats() const noexcept { return stats_; }
  /// Parts of the network that are in this rank's stage: [first, end).
  std::pair<std::size_t, std::size_t> parts() const noexcept { return {first_part_, end_part_}; }

 private:
  /// A micro-batch that waits for its backward.
  struct Alive {
    Tensor input;   ///< from the stage before; undefined on the first
    Tensor output;  ///< for the stage behind; on the last the loss
  };
  struct Sent {
    std::unique_ptr<Work> work;
    Tensor tensor;  ///< kept until the work is done
  };

  bool is_first() const noexcept { return groups_.activations.rank() == 0; }
  bool is_last() const noexcept { return groups_.activations.rank() + 1 == groups_.activations.size(); }
  Deadline patience() const { return Deadline::after(context_.patience); }
  void forward(Passes& passes, std::size_t i);
  void backward(Passes& passes, std::size_t i, bool exchange);
  void send(const Tensor& tensor, int to, Communicator& group);
  Tensor receive(int from, Communicator& group);
  void finish_sends();
  void limit();

  StrategyContext context_;
  PipelineGroups groups_;
  PipelineSchedule schedule_;
  GradientLimits limits_;
  std::size_t first_part_ = 0, end_part_ = 0;
  std::unique_ptr<StageModule> stage_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DataParallel> parallel_;  ///< among the copies
  std::unique_ptr<Reducer> idle_;
  std::vector<Alive> alive_;  ///< by micro-batch
  std::vector<Sent> sent_;
  PipelineStats stats_;
};

}  // namespace dtrain
