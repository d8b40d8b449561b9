// Streams and events of a CUDA device as the seam has them. Code that needs the raw stream behind a Stream
// (the NCCL backend) gets it from native().
#pragma once

#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/faults.h"
#include "runtime/device/device.h"

namespace dtrain::cuda {

/// An ordered queue of one GPU, which does not wait for the legacy default stream.
class CudaStream final : public Stream {
 public:
  /// `faults` is borrowed and outlives the stream. `urgent`: its kernels go first where they compete.
  CudaStream(Faults& faults, bool urgent);
  /// Also throws UsageError for what kernels found wrong with their input meanwhile (faults.h).
  void synchronize() override;
  void* native_handle() const noexcept override { return stream_.get(); }
  cudaStream_t native() const noexcept { return stream_.get(); }

 private:
  Faults& faults_;
  UniqueStream stream_;
};

class CudaEvent final : public Event {
 public:
  /// `faults` is borrowed and outlives the event.
  explicit CudaEvent(Faults& faults) : faults_(faults), event_(cuda::make_event()) {}
  void record(Stream& stream) override;
  void make_wait(Stream& stream) override;
  /// Also throws UsageError for what kernels found wrong with their input meanwhile (faults.h).
  bool done() override;

 private:
  Faults& faults_;
  UniqueEvent event_;
};

/// The CUDA stream behind `stream`, which must be a CUDA device's.
cudaStream_t native(Stream& stream);

}  // namespace dtrain::cuda
