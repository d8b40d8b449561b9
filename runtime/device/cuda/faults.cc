#include "runtime/device/cuda/faults.h"

#include <cstring>

namespace dtrain::cuda {

Faults::Faults() {
  void* host = nullptr;
  cuda::check(cudaHostAlloc(&host, sizeof(FaultRecord), cudaHostAllocMapped), "allocate pinned memory");
  memory_.reset(host);
  std::memset(host, 0, sizeof(FaultRecord));
  void* device = nullptr;
  cuda::check(cudaHostGetDevicePointer(&device, host, 0), "map pinned memory");
  on_device_ = static_cast<FaultRecord*>(device);
}

void Faults::check() {
  auto* const record = static_cast<FaultRecord*>(memory_.get());
  if (record->kind == 0) return;
  const FaultRecord seen = *record;
  std::memset(record, 0, sizeof(FaultRecord));
  throw UsageError(describe_fault(seen));
}

std::string describe_fault(const FaultRecord& record) {
  const std::string at = std::to_string(record.position), got = std::to_string(record.value);
  const std::string range = "expected 0 to " + std::to_string(record.limit - 1) + ", got " + got;
  switch (static_cast<FaultKind>(record.kind)) {
    case FaultKind::index_select:
      return "cuda kernel index_select: index[" + at + "] " + range;
    case FaultKind::index_add:
      return "cuda kernel index_add: index[" + at + "] " + range;
    case FaultKind::gather:
      return "cuda kernel gather: element " + at + " of index " + range;
    case FaultKind::scatter_add:
      return "cuda kernel scatter_add: element " + at + " of index " + range;
    case FaultKind::target:
      return "cuda kernel cross_entropy: target[" + at + "] " + range;
    case FaultKind::division:
      return "cuda kernel binary div: int64 division by zero at element " + at;
    case FaultKind::none:
      break;
  }
  return "cuda kernel: a fault of unknown kind " + std::to_string(record.kind);
}

}  // namespace dtrain::cuda
