// Every form of parallelism that updates on its ranks: a schedule (when forward and backward run), a gradient
// sync (how ranks that hold the same share gradients and the update) and a layout (what of the network is
// here, and which rank has the rest). forms.h puts them together.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "parallel/functional.h"
#include "parallel/layout/network_layout.h"
#include "parallel/schedule/schedule.h"
#include "parallel/strategy.h"
#include "parallel/sync/gradient_sync.h"

namespace dtrain {

class ParallelModel final : public Strategy {
 public:
  /// `context` is of all ranks; `name` is one of the program's own texts.
  ParallelModel(const StrategyContext& context, std::string_view name, std::unique_ptr<Schedule> schedule,
                std::unique_ptr<GradientSync> sync);
  ~ParallelModel() override;

  /// Before prepare(): the network that is built is split over `group` (SplitModule), to whose ranks each
  /// batch goes, and what was made is of the ranks that hold the same slices; `all` ranks are borrowed.
  void split_over(Communicator& all, const RankGroup& group);

  void prepare(const ModelFactory& factory, const Deadline& deadline) override;
  /// Weights that rank 0 alone reads wait for begin(), which hands them to everybody in any case.
  void load(const CheckpointFiles& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override { sync_->begin(deadline); }
  void step(MicroBatches& passes, Exchange exchange) override;
  std::optional<int> graph_key(std::int64_t step) const override;
  void sync_state(const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override;
  RankState held() override;
  Replicas replicas() override { return sync_->replicas(update_state()); }
  void exchange_alone(const Deadline& deadline) override { sync_->exchange_alone(deadline); }
  /// With what a rank held that has ranges only, and what moved.
  StrategyReport report(std::int64_t steps) const override;

  Schedule& schedule() noexcept { return *schedule_; }
  GradientSync& sync() noexcept { return *sync_; }

 private:
  void attach(const ModelFactory& factory);
  void average_weights(const AverageOptions& options);
  /// What updates keep from step to step, here: the optimizer's state, and averages.
  NamedTensors update_state() const;
  void load_update_state(NamedTensors state);
  /// What updates keep state of.
  NamedTensors stateful_tensors() const;
  void load_sharded(const CheckpointFiles& state, const Deadline& deadline);
  void update(bool exchange);
  /// Looks at the gradients of `parameters` if they are `suspected` here, and learns what the others found.
  void inspect(const NamedTensors& parameters, bool suspected, bool exchange);
  /// Whether ranks may have found other gradients than this one.
  bool differs(bool exchange) const noexcept;
  Deadline patience() const { return Deadline::after(context_.patience); }

  StrategyContext context_;
  Communicator* all_;  ///< ranks
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<GradientSync> sync_;
  std::optional<RankGroup> tp_group_;
  bool shares_checkpoint_ = false;
  GradientLimits limits_;
  GradScaler* scaler_ = nullptr;
  UpdateGuard* guard_ = nullptr;
  std::unique_ptr<Module> network_;
  std::optional<NetworkLayout> layout_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<WeightAverage> average_;
};

}  // namespace dtrain
