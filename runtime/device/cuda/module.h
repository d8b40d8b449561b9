// The CUDA module: a shared object that holds the CUDA device and the NCCL backend, opened only when one of
// them is asked for. Programs link no CUDA library: that would cost every start a tenth of a second and keep
// them from running where those libraries are missing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files/module_file.h"
#include "runtime/base/library_version.h"
#include "runtime/base/spans.h"
#include "runtime/device/device.h"
#include "runtime/device/device_work.h"

namespace dtrain::cuda {

/// Grows with every change of an interface that program and module share (device, kernels, communicator).
inline constexpr int kModuleInterface = 6;

/// What the driver and the toolkit say; texts are empty when they cannot be told.
struct ModuleReport {
  int devices = 0;
  std::string problem;    ///< why there is no device, with versions; empty when there is one
  std::string summary;    ///< "driver 13.0, runtime 13.0, cuBLAS 13.0.2, cuDNN 9.13.0"
  bool emulated = false;  ///< no GPU at all: software that behaves like one, and says nothing about speed
};

/// A visible GPU.
struct GpuReport {
  int index = 0;
  std::string name;
  Version capability;  ///< 9.0 for sm_90
  std::size_t memory_bytes = 0;
};

/// What `dtrain doctor` wants to know.
struct ModuleDetails {
  Version driver;   ///< the newest CUDA that the driver's library runs; not known: there is none
  Version runtime;  ///< CUDA's runtime inside the module
  std::vector<LibraryVersion> libraries;
  std::string architectures;  ///< what the module was built for: "80-real,90-real,90-virtual"
  std::vector<GpuReport> gpus;
};

/// The device part, from the module's function `dtrain_cuda_device`.
struct DevicePlugin {
  ModuleReport (*report)();
  std::shared_ptr<Device> (*make)(int index, const DeviceOptions& options);
  ModuleDetails (*details)();
  SpanListener& (*profiler)();
  const DeviceWorkPlugin& (*work)();
  void (*listen)(std::function<void(const std::string&)> listener);
};
using DevicePluginFunction = const DevicePlugin* (*)();

/// Whether DTRAIN_EMULATED_GPUS asks for the emulated machine (docs/gpu.md) in place of the GPUs here.
bool emulation_asked_for() noexcept;

/// Opens the module (once; it stays for the life of the process) and returns its symbol. Looks for
/// libdtrain_cuda.so (libdtrain_cuda_emulated.so where the emulated machine is asked for) at
/// $DTRAIN_CUDA_MODULE, beside the program, in ../lib of it, where it was installed, and where the dynamic
/// linker looks. Throws UsageError naming what is missing and how to get it, or that program and module are
/// of different versions.
void* module_symbol(const char* name);

/// What the module was built with and what it finds here. Throws UsageError as module_symbol().
ModuleDetails module_details();

/// While it lives `listener` hears what a user may want to know about how the module does things, each
/// thing once: "cuDNN does not take ...; ...". Called from the device's thread. One at a time.
class ModuleNotices {
 public:
  /// Throws UsageError as module_symbol().
  explicit ModuleNotices(std::function<void(const std::string&)> listener);
  ~ModuleNotices();
  ModuleNotices(const ModuleNotices&) = delete;
  ModuleNotices& operator=(const ModuleNotices&) = delete;
};

/// What emulated GPUs have done. Lives forever. Throws UsageError as module_symbol().
const DeviceWorkPlugin& module_work();

/// Shows spans as NVTX ranges, which NVIDIA's profilers (nsys profile) put beside what the GPU does; costs
/// next to nothing while none is attached. Lives forever. Throws UsageError as module_symbol().
SpanListener& module_profiler();

}  // namespace dtrain::cuda
