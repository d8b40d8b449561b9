// Pipeline parallelism: each rank of a group holds some consecutive parts of the network, a stage; the passes
// of a step are micro-batches that go through the stages one after the other, so that all of them have work.
// Where stages are interleaved a rank holds several such runs of parts, its chunks: of V chunks the c-th of
// stage s is run c · stages + s of the network.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/schedule/links.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/stage_actions.h"
#include "parallel/schedule/stage_choice.h"
#include "parallel/schedule/stage_module.h"

namespace dtrain {

/// How a network is cut into stages, and in which order they work.
struct StageOptions {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int chunks = 1;     ///< of the network in each stage: 2 or more where interleaved
  StageCut cut = {};  ///< where the network is cut
};

/// Of all steps so far.
struct PipelineStats {
  Duration waiting{};       ///< for activations and gradients of other stages
  Duration computing{};     ///< forward and backward
  int most_alive = 0;       ///< forwards that waited for their backward at the same time, in any chunk
  std::uint64_t bytes = 0;  ///< sent to other stages
};

class Pipeline final : public Schedule {
 public:
  /// `links`, of this pipeline, are borrowed: a ring where stages are interleaved.
  Pipeline(const StrategyContext& context, const PipelineLinks& links, const StageOptions& options);

  /// The whole network exists on each rank for a moment, for the sake of its initial weights, and once more
  /// before that where stages are measured. Throws UsageError for a network that is no chain (Chained) or has
  /// fewer parts than there are chunks, a cut that does not fit it, and a chunk without parameters.
  std::unique_ptr<Module> build(const ModelFactory& factory, PassHooks& hooks,
                                const Deadline& deadline) override;
  /// Every pass is a micro-batch.
  void run(MicroBatches& passes, PassHooks& hooks, bool exchange) override;
  Tensors evaluate(const Tensors& inputs, PassHooks& hooks) override;
  bool holds_outputs() const noexcept override { return stage() + 1 == stage_count(); }
  StageLayout* stages() noexcept override { return &layout_; }
  std::size_t chunk_of(const std::string& parameter) const override { return stage_->chunk_of(parameter); }
  std::size_t chunks() const noexcept override { return alive_.size(); }
  std::string plan() const override { return choice_.plan(); }
  std::map<std::string, std::string> tuned_config() const override { return choice_.tuned_config(); }

  const PipelineStats& stats() const noexcept { return stats_; }

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
  /// One step's.
  struct Step {
    MicroBatches& passes;
    PassHooks& hooks;
    bool exchange;
  };

  /// Whether a chunk begins, or ends, the network.
  bool is_first(std::size_t chunk) const noexcept { return stage() == 0 && chunk == 0; }
  bool is_last(std::size_t chunk) const noexcept {
    return stage() + 1 == stage_count() && chunk + 1 == alive_.size();
  }
  int stage() const noexcept { return links_.stages().rank(); }
  int stage_count() const noexcept { return links_.stages().size(); }
  /// The stage whose chunk comes before, or behind, each of this one's.
  int before() const noexcept { return (stage() + stage_count() - 1) % stage_count(); }
  int behind() const noexcept { return (stage() + 1) % stage_count(); }
  Deadline patience() const { return Deadline::after(context_.patience); }

  /// This stage's chunks of a network, and what it shares with other stages.
  std::unique_ptr<StageModule> cut(const Module& whole, const std::vector<LayerUnit>& chain);
  void forward(const Step& step, std::size_t chunk, std::size_t i);
  void backward(const Step& step, std::size_t chunk, std::size_t i);
  /// Computes, and counts the time.
  template <class Body>
  void compute(Phase phase, const Body& body);
  void send(const Tensor& tensor, int to, Communicator& group);
  Tensor receive(int from, Communicator& group);
  void finish_sends();

  StrategyContext context_;
  const PipelineLinks& links_;
  StageOptions options_;
  StageChoice choice_;
  StageLayout layout_;
  const GradScaler* scaler_ = nullptr;
  const StageModule* stage_ = nullptr;
  std::vector<std::vector<Alive>> alive_;  ///< by chunk, by micro-batch
  std::vector<Sent> sent_;
  PipelineStats stats_;
};

}  // namespace dtrain
