#include "runtime/device/timed_kernels.h"

#include "runtime/device/kernel_flops.h"

namespace dtrain {
template <class Run>
void TimedKernels::timed(std::string_view name, std::string_view kind, double flops, Run run) {
  stream_.synchronize();
  const SpanScope span(&spans_, name, kind, flops);
  run();
  stream_.synchronize();
}

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments)   \
  void TimedKernels::name parameters {                            \
    timed(#name, #kind, flops, [&] { kernels_.name arguments; }); \
  }
#include "runtime/device/kernels.def"

}  // namespace dtrain
