// What kernels find wrong with their input (an index out of range) and cannot throw: they note it in memory
// that the host sees too, and the next host wait throws it. So nothing in a step waits for the check.
#pragma once

#include <cstdint>

#include "runtime/device/cuda/check.h"

namespace dtrain::cuda {

enum class FaultKind : int { none = 0, index_select, index_add, target, division };

/// Written by kernels: the first fault wins.
struct FaultRecord {
  int kind;
  int padding;
  long long position, value, limit;
};

/// One record of a device, in pinned host memory mapped into the GPU's.
class Faults {
 public:
  Faults();
  /// For kernels.
  FaultRecord* record() const noexcept { return on_device_; }
  /// After the stream was waited for. Throws UsageError for what was noted, once.
  void check();

 private:
  UniquePinned memory_;
  FaultRecord* on_device_ = nullptr;
};

/// Text for a fault.
std::string describe_fault(const FaultRecord& record);

#ifdef __CUDACC__
__device__ inline void note_fault(FaultRecord* record, FaultKind kind, long long position, long long value,
                                  long long limit) {
  if (atomicCAS(&record->kind, 0, static_cast<int>(kind)) != 0) return;
  record->position = position;
  record->value = value;
  record->limit = limit;
}
#endif

}  // namespace dtrain::cuda
