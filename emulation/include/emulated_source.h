// For programs that compile.py compiles: what stands in their sources in place of what only nvcc can read. Of
// PTX it knows a few instructions; any other loses the context, with its name, when a thread comes to it.
#pragma once

#include "emulation/include/emulated_registry.h"

namespace emulation {

/// The address of a kernel, which is known to the machine from now on.
template <class... Args>
void* registered(void (*kernel)(Args...)) {
  register_kernel(kernel, "kernel");
  return reinterpret_cast<void*>(kernel);
}

namespace device {

/// The running kernel fails: it came to `instruction`, which no emulated GPU has.
void no_such_instruction(const char* instruction);

}  // namespace device
}  // namespace emulation

#undef __launch_bounds__
#define __launch_bounds__(...)
