// A whole training step as one graph of the device: recorded after a few steps have run as they are, then
// launched again and again with other inputs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "training/engine/batch_feed.h"

namespace dtrain {

/// Used by one thread. It goes before the communicator whose calls it holds, and before the device.
class StepGraph {
 public:
  explicit StepGraph(const std::shared_ptr<Device>& device) : device_(device) {}

  /// Whether the next step is to be run through the graph. Steps that are not `full` (an epoch's last) never
  /// are, having other shapes; the first full ones are not either: they make what a recording must find.
  /// Depends on nothing but the calls so far, so that all ranks agree.
  bool takes(bool full) noexcept { return full && ++full_steps_ > kWarmUpSteps; }

  /// Copies the step's batches, one a pass, to where the recorded step reads them.
  void load(BatchFeed& feed, std::span<const Batch> batches);
  const std::vector<BatchTensors>& inputs() const noexcept { return inputs_; }

  bool is_recorded() const noexcept { return graph_ != nullptr; }
  /// Records `work` (Device::record), which reads inputs().
  void record(const std::function<void()>& work);
  void launch() { graph_->launch(device_->compute_stream()); }

 private:
  static constexpr int kWarmUpSteps = 3;

  std::shared_ptr<Device> device_;
  std::vector<BatchTensors> inputs_;
  std::unique_ptr<Graph> graph_;
  int full_steps_ = 0;
};

}  // namespace dtrain
