// Data parallelism as a strategy: every rank holds the whole network and computes its share of each batch;
// gradients are averaged in buckets while backward goes on (torch's DistributedDataParallel).
#pragma once

#include "parallel/data/data_parallel.h"
#include "parallel/strategy.h"

namespace dtrain {

class DataParallelStrategy final : public Strategy {
 public:
  /// `waits_inside`: steps wait for peers while they compute (batch norm over all workers), so none can be
  /// recorded.
  explicit DataParallelStrategy(const StrategyContext& context, ReducerOptions options = {},
                                bool waits_inside = false);

  std::string_view name() const noexcept override { return "data parallel"; }
  DataShare share() const noexcept override {
    return {context_.communicator.rank(), context_.communicator.size()};
  }
  bool holds_outputs() const noexcept override { return true; }
  bool in_step() const noexcept override { return true; }

  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  bool sharded() const noexcept override { return false; }
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  void step(Passes& passes, Exchange exchange) override;
  std::optional<int> variant(std::int64_t step) const override;
  void settle(const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  /// Rank 0 has everything, the others nothing.
  StateParts save() override;
  /// Parameters and the optimizer's state; running statistics are each rank's own.
  Replicas replicas() override;
  Module& module() noexcept override { return *network_; }
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }
  /// Scales and all-reduces as many bytes in the same buckets.
  void exchange_alone(const Deadline& deadline) override;

 private:
  Deadline patience() const { return Deadline::after(context_.patience); }
  void run_pass(Passes& passes, std::size_t i, bool exchange);

  StrategyContext context_;
  ReducerOptions options_;
  bool waits_inside_;
  GradientLimits limits_;
  GradScaler* scaler_ = nullptr;
  std::unique_ptr<Module> network_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Reducer> idle_;  ///< the same buckets, for exchange_alone(); made when first needed
};

}  // namespace dtrain
