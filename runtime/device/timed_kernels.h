// Every kernel of another table, with a span around it. For make_timed_device().
#pragma once

#include "runtime/base/spans.h"
#include "runtime/device/device.h"

namespace dtrain {

class TimedKernels final : public Kernels {
 public:
  /// All borrowed.
  TimedKernels(Kernels& kernels, Stream& stream, SpanRecorder& spans)
      : kernels_(kernels), stream_(stream), spans_(spans) {}

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) void name parameters override;
#include "runtime/device/kernels.def"

 private:
  template <class Run>
  void timed(std::string_view name, std::string_view kind, double flops, Run run);

  Kernels& kernels_;
  Stream& stream_;
  SpanRecorder& spans_;
};

}  // namespace dtrain
