// A pipeline over devices of one process: a thread for each CPU, or one that queues for all GPUs. Stages hand
// tensors to their neighbours' devices. Processes that do so share batches as data parallelism does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/placed/placed_network.h"
#include "parallel/schedule/stage_actions.h"
#include "parallel/schedule/stage_choice.h"
#include "parallel/sync/replicated_strategy.h"
#include "runtime/nn/dropout.h"

namespace dtrain {

struct DevicePipelineOptions {
  std::vector<std::string> devices;  ///< one stage each, in order
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int chunks = 1;     ///< of the network in each stage: 2 or more where interleaved
  StageCut cut = {};  ///< where the network is cut; measured on the context's device
  OptimizerState optimizer_state = OptimizerState::everywhere;
};

class DevicePipelineStrategy final : public ReplicatedStrategy {
 public:
  /// `context` has one of the devices, where batches come and losses are computed: best the last of GPUs,
  /// whose stage then waits for no other one's. All are CPUs, or all are GPUs.
  DevicePipelineStrategy(const StrategyContext& context, DevicePipelineOptions options, NamedDevices devices);
  ~DevicePipelineStrategy() override;

  std::string_view name() const noexcept override { return "pipeline"; }
  /// Throws UsageError for a network that is no chain or has fewer parts than there are chunks, and a cut
  /// that does not fit it.
  void prepare(const TrainingParts& parts, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  /// Every pass is a micro-batch. Gradients are shared when all of them are there. For GPUs, and for a
  /// network with dropout, the inputs of all micro-batches are asked for before the first one is computed.
  void step(Passes& passes, Exchange exchange) override;
  std::optional<int> variant(std::int64_t /*step*/) const override { return std::nullopt; }
  void settle(const Deadline& deadline) override;
  void exchange_alone(const Deadline& deadline) override { share_gradients(deadline); }
  std::string proposal() const override { return choice_.proposal(); }
  std::map<std::string, std::string> choices() const override { return choice_.choices(); }

 private:
  class Step;
  const std::shared_ptr<Device>& device_of(std::size_t run) const;
  void share_gradients(const Deadline& deadline);

  DevicePipelineOptions options_;
  NamedDevices devices_;
  StageChoice choice_;
  std::vector<Chunk> runs_;  ///< of the network's parts, in order; each with its input brought to its device
  std::vector<std::vector<std::shared_ptr<DropoutKey>>> keys_;  ///< of each run; runs on one device may share
};

}  // namespace dtrain
