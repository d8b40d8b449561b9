// A pipeline over devices of one process: a thread for each CPU, or one that queues for all GPUs. Stages hand
// tensors to their neighbours' devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/placed/placed_network.h"
#include "parallel/schedule/pipeline.h"
#include "runtime/nn/dropout.h"

namespace dtrain {

class DevicePipeline final : public Schedule {
 public:
  /// `devices`: names of one for each stage, in order, of `all`. `context` has one of them, where batches
  /// come and losses are computed: best the last of GPUs, whose stage then waits for no other one's. All are
  /// CPUs, or all are GPUs.
  DevicePipeline(const StrategyContext& context, std::vector<std::string> devices, NamedDevices all,
                 const StageOptions& options);
  ~DevicePipeline() override;

  /// Throws UsageError for a network that is no chain or has fewer parts than there are chunks, and a cut
  /// that does not fit it.
  std::unique_ptr<Module> build(const ModelFactory& factory, PassHooks& hooks,
                                const Deadline& deadline) override;
  /// Every pass is a micro-batch. Of the hooks none is called, since stages are threads. For GPUs, and for a
  /// network with dropout, the inputs of all micro-batches are asked for before the first one is computed.
  void run(MicroBatches& passes, PassHooks& hooks, bool exchange) override;
  Tensors evaluate(const Tensors& inputs, PassHooks& hooks) override;
  std::string plan() const override { return choice_.plan(); }
  std::map<std::string, std::string> tuned_config() const override { return choice_.tuned_config(); }

 private:
  class Step;
  const std::shared_ptr<Device>& device_of(std::size_t run) const;

  StrategyContext context_;
  std::vector<std::string> devices_;  ///< by stage
  NamedDevices all_;
  StageOptions options_;
  Module* network_ = nullptr;
  const GradScaler* scaler_ = nullptr;
  StageChoice choice_;
  std::vector<Chunk> runs_;  ///< of the network's parts, in order; each with its input brought to its device
  std::vector<std::vector<std::shared_ptr<DropoutKey>>> keys_;  ///< of each run; runs on one device may share
};

}  // namespace dtrain
