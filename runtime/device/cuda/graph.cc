#include "runtime/device/cuda/graph.h"

#include <exception>

#include "runtime/device/cuda/stream.h"

namespace dtrain::cuda {
namespace {

using UniqueGraph = Unique<PointerTraits<cudaGraph_t, cudaGraphDestroy>>;
using UniqueGraphExec = Unique<PointerTraits<cudaGraphExec_t, cudaGraphExecDestroy>>;

class CudaGraph final : public Graph {
 public:
  CudaGraph(Memory& memory, std::shared_ptr<RecordedMemory> recorded)
      : memory_(memory), recorded_(std::move(recorded)) {}

  ~CudaGraph() override {
    executable_.reset();  // while it runs CUDA puts this off; freeing the memory waits for it
    memory_.retire(recorded_);
  }

  void instantiate(cudaGraph_t graph) {
    cudaGraphExec_t executable = nullptr;
    // Collectives keep the priority of the stream they were recorded on.
    check(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority),
          "make a CUDA graph of what was recorded");
    executable_.reset(executable);
  }

  void launch(Stream& stream) override {
    check(cudaGraphLaunch(executable_.get(), cuda::native(stream)), "launch a CUDA graph");
  }

 private:
  Memory& memory_;
  std::shared_ptr<RecordedMemory> recorded_;
  UniqueGraphExec executable_;
};

/// Runs `work` between the begin and the end of a recording, which end however it goes.
UniqueGraph capture(cudaStream_t stream, const std::function<void()>& work) {
  // Other threads are not affected: a watchdog asks for events of earlier calls.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin to record a CUDA graph");
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  UniqueGraph owned(graph);
  if (failure) {
    static_cast<void>(cudaGetLastError());  // the failure says more than the recording that it invalidated
    std::rethrow_exception(failure);
  }
  check(ended, "end the recording of a CUDA graph");
  return owned;
}

}  // namespace

std::unique_ptr<Graph> record_graph(cudaStream_t stream, Memory& memory, const std::function<void()>& work) {
  check(cudaStreamSynchronize(stream), "wait before a CUDA graph is recorded");
  memory.begin_recording();
  UniqueGraph recorded;
  std::exception_ptr failure;
  try {
    recorded = capture(stream, work);
  } catch (...) {
    failure = std::current_exception();
  }
  auto graph = std::make_unique<CudaGraph>(memory, memory.end_recording());
  if (failure) std::rethrow_exception(failure);
  graph->instantiate(recorded.get());
  return graph;
}

}  // namespace dtrain::cuda
