// What a device has done, kernel by kernel, where it can say: an emulated GPU does (docs/gpu.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// What the multiply-adds of a library call are done in.
enum class Arithmetic { none, f64, f32, tf32, bf16, f16 };

/// One kernel or library call. Exact numbers about the program, and nothing about time.
struct DeviceWork {
  std::string name;  ///< "apply_kernel<T>", "cudnnConvolutionForward", "memcpy"
  /// Of GPU memory: a kernel's in sectors of 32 bytes, each counted once a call, a library's inputs and
  /// outputs.
  double read_bytes = 0, written_bytes = 0;
  double bus_bytes = 0;   ///< between host and GPU
  double operations = 0;  ///< of libraries; a multiply and an add are two
  Arithmetic arithmetic = Arithmetic::none;
};

/// What the machine was asked to do since its start, by name: "launches", "graph_nodes", "host_waits",
/// "allocations", "pinned_allocations", "copies", …
using WorkCounts = std::map<std::string, std::uint64_t>;

/// How a module tells of it. That of real GPUs notes nothing and says so.
struct DeviceWorkPlugin {
  /// Notes work from now on, or no longer. False where it cannot.
  bool (*note)(bool on);
  /// What was noted since the last call, in the order in which it ran.
  std::vector<DeviceWork> (*take)();
  WorkCounts (*counts)();
};

}  // namespace dtrain
