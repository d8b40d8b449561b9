#include "runtime/device/cuda/stream.h"

namespace dtrain::cuda {
namespace {

UniqueStream make_native_stream(bool urgent) {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for stream priorities");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
        "create a CUDA stream");
  return UniqueStream(stream);
}

}  // namespace

CudaStream::CudaStream(Faults& faults, bool urgent) : faults_(faults), stream_(make_native_stream(urgent)) {}

void CudaStream::synchronize() {
  check(cudaStreamSynchronize(stream_.get()), "wait for a CUDA stream");
  faults_.check();
}

cudaStream_t native(Stream& stream) { return static_cast<CudaStream&>(stream).native(); }

void CudaEvent::record(Stream& stream) {
  check(cudaEventRecord(event_.get(), native(stream)), "record a CUDA event");
}

void CudaEvent::make_wait(Stream& stream) {
  check(cudaStreamWaitEvent(native(stream), event_.get(), 0), "let a CUDA stream wait for an event");
}

bool CudaEvent::done() {
  const cudaError_t state = cudaEventQuery(event_.get());
  if (state == cudaErrorNotReady) return false;
  check(state, "ask for a CUDA event");
  faults_.check();
  return true;
}

}  // namespace dtrain::cuda
