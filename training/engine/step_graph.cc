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

}  // namespace dtrain
