// Every form of parallelism that updates on its ranks: a schedule (when forward and backward run), a gradient
// sync (how ranks that hold the same share gradients and the update) and a layout (what of the network is
// here, and who has the rest). forms.h puts them together.
#pragma once

#include <memory>
#include <optional>
#include <string>
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

  /// Before prepare(): the network that is built is divided over `group` (SplitModule), to whose ranks each
  /// batch goes, and what was made is of the ranks that hold the same slices; `all` ranks are borrowed.
  void divide_over(Communicator& all, const RankGroup& group);

  std::string_view name() const noexcept override { return name_; }
  DataShare share() const noexcept override { return sync_->share(); }
  /// Where layers are slices, on the first rank of each group.
  bool holds_outputs() const noexcept override {
    return schedule_->holds_outputs() && (!slices_ || slices_->communicator.rank() == 0);
  }
  bool in_step() const noexcept override { return true; }
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  bool sharded() const noexcept override;
  bool computes_together() const noexcept override { return computes_together_; }
  /// Weights that rank 0 alone reads wait for begin(), which hands them to everybody in any case.
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override { sync_->begin(deadline); }
  void step(Passes& passes, Exchange exchange) override;
  std::optional<int> variant(std::int64_t step) const override;
  void settle(const Deadline& deadline) override { sync_->settle(*optimizer_, deadline); }
  bool settling_counts() const noexcept override { return sync_->settling_counts(); }
  Tensors evaluate(const Tensors& inputs) override;
  StateParts save() override;
  StateParts replica() override;
  Replicas replicas() override { return sync_->replicas(optimizer_->named_state()); }
  Module& module() noexcept override { return *network_; }
  /// Of all that is here, or of what is this rank's where ranks share it out.
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }
  void exchange_alone(const Deadline& deadline) override { sync_->exchange_alone(deadline); }
  std::string proposal() const override { return schedule_->proposal(); }
  std::map<std::string, std::string> choices() const override { return schedule_->choices(); }
  /// What a rank held that has ranges only, and what moved.
  std::string account(std::int64_t steps) const override;

  Schedule& schedule() noexcept { return *schedule_; }
  GradientSync& sync() noexcept { return *sync_; }

 private:
  void attach(const TrainingParts& parts);
  void load_sharded(const SavedState& state, const Deadline& deadline);
  void update(bool exchange);
  /// Whether ranks may have found other gradients than this one.
  bool differs(bool exchange) const noexcept;
  Deadline patience() const { return Deadline::after(context_.patience); }

  StrategyContext context_;
  Communicator* all_;  ///< ranks
  std::string_view name_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<GradientSync> sync_;
  bool computes_together_;  ///< on all stages, those that are frozen too
  std::optional<RankGroup> slices_;
  GradientLimits limits_;
  GradScaler* scaler_ = nullptr;
  UpdateGuard* guard_ = nullptr;
  std::unique_ptr<Module> network_;
  std::optional<NetworkLayout> layout_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace dtrain
