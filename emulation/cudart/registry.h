// Kernels that are launched by their address (emulated_registry.h).
#pragma once

#include "emulation/include/emulated_registry.h"

namespace emulation {

struct RegisteredKernel {
  const char* name;
  Binding bind;
};

/// The kernel at `address`, or null where none was registered. It stays as long as the program.
const RegisteredKernel* find_kernel(const void* address);

}  // namespace emulation
