// Recording streams, and the graphs that come of it.
#include <signal.h>
#include <unistd.h>

#include "emulation/cudart/enter.h"

namespace emulation {
namespace {

// Whether every stream that joined has been waited for: its last nodes come before the origin's.
bool all_joined(const Capture& capture) {
  std::vector<bool> before(capture.nodes.size(), false);
  std::vector<std::uint32_t> open = capture.origin->tail;
  while (!open.empty()) {
    const std::uint32_t node = open.back();
    open.pop_back();
    if (before[node]) continue;
    before[node] = true;
    open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  for (const Stream* member : capture.members) {
    for (const std::uint32_t node : member->tail) {
      if (!before[node]) return false;
    }
  }
  return true;
}

cudaError_t end_capture(Machine& machine, Stream& stream, cudaGraph_t* graph) {
  const auto capture = stream.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  if (machine.fault(Place::recording, stream.device) == "die") ::kill(::getpid(), SIGKILL);
  const bool joined = all_joined(*capture);
  capture->ended = true;
  for (Stream* member : capture->members) {
    member->capture.reset();
    member->tail.clear();
  }
  std::erase(machine.captures(), capture);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{std::make_shared<const std::vector<Node>>(std::move(capture->nodes))};
  return cudaSuccess;
}

/// One run of a graph: nodes whose predecessors are done, in the machine's order.
class GraphRun {
 public:
  GraphRun(Machine& machine, std::shared_ptr<const std::vector<Node>> nodes, std::shared_ptr<bool> running)
      : machine_(machine), nodes_(std::move(nodes)), running_(std::move(running)), missing_(nodes_->size()) {
    followers_.resize(nodes_->size());
    for (std::uint32_t i = 0; i < nodes_->size(); ++i) {
      missing_[i] = static_cast<std::uint32_t>((*nodes_)[i].after.size());
      for (const std::uint32_t before : (*nodes_)[i].after) followers_[before].push_back(i);
      if (missing_[i] == 0) ready_.push_back({i, nullptr});
    }
  }

  Progress go_on() {
    if (!began_) {
      if (*running_) return Progress::stalled;  // launched again while it runs: one after the other
      *running_ = began_ = true;
    }
    bool moved = false;
    std::size_t stalled = 0;
    while (stalled < ready_.size()) {
      const std::size_t at = stalled + machine_.order().pick(ready_.size() - stalled);
      Ready& chosen = ready_[at];
      const Operation& operation = (*nodes_)[chosen.node].operation;
      if (!chosen.run) chosen.run = operation.start();
      const Progress progress = chosen.run();
      if (progress == Progress::stalled) {
        std::swap(ready_[stalled++], chosen);
        continue;
      }
      moved = true;
      if (progress != Progress::done) continue;
      const std::uint32_t done = chosen.node;
      ++machine_.counts().graph_nodes;
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
      for (const std::uint32_t next : followers_[done]) {
        if (--missing_[next] == 0) ready_.push_back({next, nullptr});
      }
      if (!machine_.order().natural() && !ready_.empty())
        return Progress::moved;  // other streams get their turn
    }
    if (!ready_.empty()) return moved ? Progress::moved : Progress::stalled;
    *running_ = false;
    return Progress::done;
  }

 private:
  struct Ready {
    std::uint32_t node;
    std::function<Progress()> run;
  };
  Machine& machine_;
  std::shared_ptr<const std::vector<Node>> nodes_;
  std::shared_ptr<bool> running_;
  std::vector<std::uint32_t> missing_;
  std::vector<std::vector<std::uint32_t>> followers_;
  std::vector<Ready> ready_;
  bool began_ = false;
};

}  // namespace
}  // namespace emulation

using emulation::Machine;
using emulation::note;

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  if (handle == nullptr || handle == cudaStreamLegacy) return note(cudaErrorStreamCaptureUnsupported);
  const auto stream = handle->stream;
  if (stream->capture) return note(cudaErrorIllegalState);
  auto capture = std::make_shared<emulation::Capture>();
  capture->origin = stream.get();
  capture->members.insert(stream.get());
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  stream->capture = capture;
  stream->tail.clear();
  machine.captures().push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  return note(emulation::end_capture(machine, *stream, graph));
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, emulation::capture_mode());
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                           unsigned long long) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (graph == nullptr) return note(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->nodes, std::make_shared<bool>(false)};
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  if (const cudaError_t error = emulation::enter(); error != cudaSuccess) return note(error);
  if (executable == nullptr) return note(cudaErrorInvalidValue);
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  ++machine.counts().graph_launches;
  emulation::Operation operation{emulation::Kind::graph, "graph", {}};
  operation.start = [&machine, nodes = executable->nodes, running = executable->running] {
    auto run = std::make_shared<emulation::GraphRun>(machine, nodes, running);
    return [run] { return run->go_on(); };
  };
  machine.queue(stream, std::move(operation));
  return cudaSuccess;
}

// What runs keeps what it needs.
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return note(emulation::enter());
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return note(emulation::enter());
}

}  // extern "C"
