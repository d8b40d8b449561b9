// The CUDA module: a shared object that holds the CUDA device and the NCCL backend, opened only when one of
// them is asked for. Programs link no CUDA library: that would cost every start a tenth of a second and keep
// them from running where those libraries are missing.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/device/device.h"

namespace dtrain::cuda {

/// Grows with every change of an interface that program and module share (device, kernels, communicator).
inline constexpr int kModuleInterface = 2;

/// What every module begins with: who built it. The module's symbol `dtrain_cuda_module` is a function that
/// returns it.
struct ModuleHead {
  int interface = 0;
  const char* version = "";
};
using ModuleHeadFunction = const ModuleHead* (*)();

/// What the driver and the toolkit say; texts are empty when they cannot be told.
struct ModuleReport {
  int devices = 0;
  std::string problem;  ///< why there is no device, with versions; empty when there is one
  std::string summary;  ///< "driver 13.0, runtime 13.0, cuBLAS 13.0.2, cuDNN 9.13.0"
};

/// The device part, from the module's function `dtrain_cuda_device`.
struct DevicePart {
  ModuleReport (*report)();
  std::shared_ptr<Device> (*make)(int index, const DeviceOptions& options);
};
using DevicePartFunction = const DevicePart* (*)();

/// Opens the module (once; it stays for the life of the process) and returns its symbol. Looks for
/// libdtrain_cuda.so at $DTRAIN_CUDA_MODULE, beside the program, in ../lib of it, where it was installed, and
/// where the dynamic linker looks. Throws UsageError naming what is missing and how to get it, or that
/// program and module are of different versions.
void* module_symbol(const char* name);

}  // namespace dtrain::cuda
