// Pipeline parallelism: each rank of a group holds some consecutive parts of the network, a stage; the passes
// of a step are micro-batches that go through the stages one after the other, so that all of them have work.
// Where stages are interleaved a rank holds several such runs of parts, its chunks: of V chunks the c-th of
// stage s is run c · stages + s of the network. Across the groups the copies of a stage share batches as data
// parallelism does.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/layout/parameter_order.h"
#include "parallel/layout/ties.h"
#include "parallel/schedule/links.h"
#include "parallel/schedule/stage_actions.h"
#include "parallel/schedule/stage_choice.h"
#include "parallel/schedule/stage_module.h"
#include "parallel/strategy.h"
#include "parallel/sync/stage_sharing.h"

namespace dtrain {

/// The groups that a rank of a pipeline talks in; borrowed.
struct PipelineGroups {
  const PipelineLinks& links;  ///< of this pipeline; a ring where stages are interleaved
  Communicator& copies;        ///< the ranks that hold this stage
};

struct PipelineOptions {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int chunks = 1;               ///< of the network in each stage: 2 or more where interleaved
  StageCut cut = {};            ///< where the network is cut
  ReducerOptions reducer = {};  ///< of gradients among the copies
  /// What a stage's copies share out: the optimizer's state by whole parameters (DealtParameters), gradients
  /// and parameters by ranges (ShardedParameters), without `reducer`. The patience is the context's.
  std::optional<ShardOptions> shard = std::nullopt;
  /// Parts into which a batch is always cut: a copy's are its micro-batches, and the sums have the same bits
  /// for any number of copies (PartGradients), without `reducer`. 0: micro-batches are as many as there are
  /// passes.
  int virtual_workers = 0;
};

/// Of all steps so far.
struct PipelineStats {
  Duration waiting{};       ///< for activations and gradients of other stages
  Duration computing{};     ///< forward and backward
  int most_alive = 0;       ///< forwards that waited for their backward at the same time, in any chunk
  std::uint64_t bytes = 0;  ///< sent to other stages
};

class PipelineStrategy final : public Strategy {
 public:
  /// Throws UsageError for virtual workers that are fewer than the copies, or beside several chunks or
  /// ranges.
  PipelineStrategy(const StrategyContext& context, const PipelineGroups& groups, PipelineOptions options);
  ~PipelineStrategy() override;

  std::string_view name() const noexcept override { return "pipeline"; }
  DataShare share() const noexcept override { return share_; }
  bool holds_outputs() const noexcept override { return stage() + 1 == stages(); }
  bool in_step() const noexcept override { return true; }

  /// The whole network exists on each rank for a moment, for the sake of its initial weights, and once more
  /// before that where stages are measured. Throws UsageError for a network that is no chain (Chained) or has
  /// fewer parts than there are chunks, a cut that does not fit it, and a chunk without parameters.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  /// Every rank writes its stage.
  bool sharded() const noexcept override { return true; }
  bool computes_together() const noexcept override {
    return options_.shard && options_.shard->stage == ShardStage::parameters;
  }
  void load(const SavedState& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override { sharing_->begin(deadline); }
  /// Every pass is a micro-batch; with virtual workers a part.
  void step(Passes& passes, Exchange exchange) override;
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override;
  bool settling_counts() const noexcept override {
    return options_.reducer.exchange && options_.reducer.exchange->remembers();
  }
  Tensors evaluate(const Tensors& inputs) override;
  StateParts save() override;
  Replicas replicas() override { return sharing_->replicas(optimizer_->named_state()); }
  /// This rank's stage.
  Module& module() noexcept override { return *stage_; }
  /// Of all that is here, or of what is this rank's where copies share it out.
  Optimizer* optimizer() noexcept override { return optimizer_.get(); }
  Communicator* ranges() noexcept override { return sharing_->ranges(); }
  GradientExchange* remembers() noexcept override {
    return settling_counts() ? options_.reducer.exchange.get() : nullptr;
  }
  void exchange_alone(const Deadline& deadline) override { sharing_->exchange_alone(deadline); }
  std::string proposal() const override { return choice_.proposal(); }
  std::map<std::string, std::string> choices() const override { return choice_.choices(); }

  const PipelineStats& stats() const noexcept { return stats_; }
  /// Tied weights that other stages hold too; after prepare().
  const Ties& ties() const noexcept { return ties_; }
  /// Of the whole network's parameters; after prepare().
  const ParameterOrder& order() const noexcept { return order_; }

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

  /// Whether a chunk begins, or ends, the network.
  bool is_first(std::size_t chunk) const noexcept { return stage() == 0 && chunk == 0; }
  bool is_last(std::size_t chunk) const noexcept {
    return stage() + 1 == stages() && chunk + 1 == alive_.size();
  }
  int stage() const noexcept { return groups_.links.stages().rank(); }
  int stages() const noexcept { return groups_.links.stages().size(); }
  /// The stage whose chunk comes before, or behind, each of this one's.
  int before() const noexcept { return (stage() + stages() - 1) % stages(); }
  int behind() const noexcept { return (stage() + 1) % stages(); }
  Deadline patience() const { return Deadline::after(context_.patience); }
  /// Whether copies have ranges of a stage's parameters, of stages that learn.
  bool cuts_ranges() const noexcept {
    return options_.shard && options_.shard->stage != ShardStage::optimizer;
  }

  /// How the copies of this stage share it, as the options say.
  std::unique_ptr<StageSharing> make_sharing(const TrainingParts& parts);
  /// This stage's chunks of a network, and what it shares with other stages.
  void cut(const Module& whole, const std::vector<ChainPart>& chain);
  void run(Passes& passes, std::span<const StageAction> actions, bool exchange);
  void forward(Passes& passes, std::size_t chunk, std::size_t i);
  void backward(Passes& passes, std::size_t chunk, std::size_t i, bool exchange);
  /// Computes, and counts the time.
  template <class Body>
  void compute(Phase phase, const Body& body);
  void send(const Tensor& tensor, int to, Communicator& group);
  Tensor receive(int from, Communicator& group);
  void finish_sends();
  void update();
  void limit();
  void add_up(const Tensor& numbers, Communicator& ranks);
  /// What the exchange of gradients remembers and this stage saves, by the names of checkpoints.
  NamedTensors remembered_here();
  std::vector<Tensor> gradients() const;

  StrategyContext context_;
  PipelineGroups groups_;
  PipelineOptions options_;
  DataShare share_;
  StageChoice choice_;
  GradientLimits limits_;
  GradScaler* scaler_ = nullptr;
  UpdateGuard* guard_ = nullptr;
  std::function<void()> before_update_;
  std::unique_ptr<StageModule> stage_;
  Ties ties_;
  ParameterOrder order_;
  std::unique_ptr<StageSharing> sharing_;  ///< among the copies
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::vector<Alive>> alive_;  ///< by chunk, by micro-batch
  std::vector<Sent> sent_;
  PipelineStats stats_;
};

}  // namespace dtrain
