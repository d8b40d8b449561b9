// Spans as NVTX ranges, for NVIDIA's profilers.
#pragma once

#include "runtime/base/spans.h"

namespace dtrain::cuda {

/// Lives forever. Ranges are in the domain "dtrain", nested on the thread of their span.
SpanListener& nvtx_ranges();

}  // namespace dtrain::cuda
