// What kernels find wrong with their input (an index out of range) and cannot throw: they note it in memory
// that the host sees too, and the next host wait throws it. So nothing in a step waits for the check.
#pragma once

#include <cstdint>

#include "runtime/device/cuda/check.h"

namespace dtrain::cuda {

enum class FaultKind : int { none = 0, index_select, index_add, gather, scatter_add, target, division };

/// Written by kernels: one of the first faults wins.
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

#ifdef DTRAIN_KERNELS
/// Any of several threads that find something at once may win: no atomics, which host memory need not
/// support.
__device__ inline void note_fault(FaultRecord* record, FaultKind kind, long long position, long long value,
                                  long long limit) {
  volatile FaultRecord* const seen = record;
  if (seen->kind != 0) return;
  seen->position = position;
  seen->value = value;
  seen->limit = limit;
  __threadfence_system();
  seen->kind = static_cast<int>(kind);
}
#endif

}  // namespace dtrain::cuda
