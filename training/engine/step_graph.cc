#include "training/engine/step_graph.h"

#include "runtime/base/error.h"

namespace dtrain {

void StepGraph::load(BatchFeed& feed, std::span<const Batch> batches) {
  if (inputs_.empty()) {
    for (const Batch& batch : batches) inputs_.push_back(feed.take(batch));
    return;
  }
  for (std::size_t i = 0; i < batches.size(); ++i) feed.take_into(batches[i], inputs_[i]);
}

void StepGraph::record(const std::function<void()>& work) {
  try {
    graph_ = device_->record(work);
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) +
                          "; the step could not be recorded as a graph: run again with --cuda-graph off",
                      error.code());
  }
}

std::unique_ptr<StepGraph> make_step_graph(std::string_view choice, bool sync_batch_norm,
                                           const std::shared_ptr<Device>& device) {
  if (choice == "on" && !device->has_graphs()) {
    throw UsageError("--cuda-graph on: expected a device with graphs, got " + device->name() +
                     "; use --device cuda, or --cuda-graph auto");
  }
  if (choice == "on" && sync_batch_norm) {
    throw UsageError(
        "--cuda-graph on: expected no --sync-batch-norm, whose exchanges are waited for inside a step; leave "
        "one of the two out, or use --cuda-graph auto");
  }
  return choice != "off" && !sync_batch_norm && device->has_graphs() ? std::make_unique<StepGraph>(device)
                                                                     : nullptr;
}

}  // namespace dtrain
