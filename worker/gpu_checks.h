// What `dtrain doctor` makes of what it finds about GPUs. Pure: the same on machines with and without one.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/library_version.h"
#include "worker/doctor.h"
#include "worker/nvidia_driver.h"

namespace dtrain {

/// Whether the kernel's side of the driver is there, and which GPUs it has.
Finding judge_driver(const NvidiaDriver& driver);

/// Whether the driver's library runs programs of CUDA `runtime`. `supported`: the newest CUDA it runs; not
/// known: it was not found. `driver` tells a machine without a GPU from one whose driver is incomplete.
Finding judge_driver_library(const Version& supported, const Version& runtime, const NvidiaDriver& driver);

/// Whether the loaded library may stand in for the one the module was built with.
Finding judge_library(const LibraryVersion& library);

/// A visible GPU. `capability` is 9.0 for sm_90; `architectures` is what the module was built for
/// ("80-real,90-real,90-virtual").
Finding judge_gpu(int index, const std::string& name, const Version& capability, double memory_gib,
                  std::string_view architectures);

/// Whether code for `architectures` runs on a GPU of `capability`: machine code does on the same major and
/// no older minor version, PTX ("-virtual", or no suffix) on all newer ones.
bool has_code_for(std::string_view architectures, const Version& capability);

}  // namespace dtrain
