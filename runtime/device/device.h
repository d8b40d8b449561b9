// The device seam: memory, streams, events and kernels. Everything above it is written once for all devices.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/device/kernels.h"

namespace dtrain {

enum class DeviceType { cpu, cuda };

/// An ordered queue of device work. On the CPU work runs in the calling thread and a stream is always idle.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Blocks the host until everything queued so far has finished. Throws DeviceError.
  virtual void synchronize() = 0;
  /// The backend's own handle (cudaStream_t), for a library that queues work of its own; null on the CPU.
  virtual void* native_handle() const noexcept { return nullptr; }
};

/// A point in a stream that another stream or the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  /// Makes later work of `stream` wait for the recorded point; does not block the host.
  virtual void make_wait(Stream& stream) = 0;
  /// Whether the recorded point is past. Throws DeviceError, and what Stream::synchronize() would.
  virtual bool done() = 0;
};

/// Device work that was recorded once and runs by one call (Device::record).
class Graph {
 public:
  virtual ~Graph() = default;
  /// Queues the recorded work on `stream`. Throws DeviceError.
  virtual void launch(Stream& stream) = 0;
};

enum class CopyKind { device_to_device, host_to_device, device_to_host };

/// One device of one process; created by `make_device`, passed to the code that needs it, outlives every
/// tensor on it. A CPU computes for any threads, each on tensors that no other one writes; any other device
/// for one thread at a time, but for allocate/deallocate: kernels that another thread calls meanwhile throw
/// UsageError.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceType type() const noexcept = 0;
  /// Whether kernels are queued: the host runs ahead of the device, reads results late, and cannot look at
  /// the device's memory. False: a kernel has run when its call returns, and memory is the host's own.
  virtual bool runs_ahead() const noexcept = 0;
  /// Index among the visible devices of its type; N for "cpu:N", 0 for "cpu".
  virtual int index() const noexcept = 0;
  /// "cpu (oneDNN 2.6.3, avx512_core_bf16)", "cuda:0 (NVIDIA H200)"
  virtual std::string name() const = 0;
  /// Software that behaves like the device, for tests and trials (docs/gpu.md): its speed means nothing.
  virtual bool is_emulated() const noexcept { return false; }
  /// Whether kernels compute with operands of float16, whose precision is emulated in float32 elsewhere.
  virtual bool has_float16() const noexcept { return false; }

  /// Memory of at least `bytes`, aligned to 64, usable by work queued on the compute stream from now on.
  /// Thread-safe. Throws DeviceError naming the size when there is none.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Takes back memory from allocate(bytes) once work already queued on the compute stream is done with it.
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
  /// Host memory that copies asynchronously; plain memory on the CPU.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void deallocate_pinned(void* memory, std::size_t bytes) noexcept = 0;

  virtual void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) = 0;

  /// The stream kernels run on.
  virtual Stream& compute_stream() noexcept = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// The calling thread's.
  virtual Kernels& kernels() noexcept = 0;

  /// Whether record() works.
  virtual bool has_graphs() const noexcept = 0;
  /// Calls `work` and records what it queues on the compute stream, and on streams that events fork from it
  /// and join again, instead of running it. Memory that `work` allocates belongs to the graph, at the same
  /// addresses in each run; memory from before that the recorded work touches must outlive the graph, the
  /// graph not the device. `work` must not wait for the device, and numbers the host computes (a kernel's
  /// arguments) stay as they were. Call from the device's thread. Throws UsageError where there are no
  /// graphs, DeviceError for what cannot be recorded, and what `work` throws; nothing has run then.
  virtual std::unique_ptr<Graph> record(const std::function<void()>& work) = 0;

  /// Bytes handed out now, and the most at any time, by allocate().
  virtual std::size_t allocated_bytes() const noexcept = 0;
  virtual std::size_t peak_allocated_bytes() const noexcept = 0;
};

/// What a device may be told when it is made. The CPU has no use for any of it.
struct DeviceOptions {
  /// Which visible GPU "cuda" and "auto" mean; where only one is visible it is that one.
  int local_rank = 0;
  /// Lets f32 products run in TF32 (10 bits of mantissa) on tensor cores.
  bool tf32 = false;
  /// Tries convolution algorithms and keeps the fastest for each shape. Without it the library's heuristic
  /// decides, so that two runs use the same algorithms. Either way only deterministic ones are used.
  bool autotune = true;
};

/// "cpu", "cpu:1" (every call makes a device with memory of its own), "cuda" (the worker's own), "cuda:1" or
/// "auto" ("cuda" where module and machine have a GPU, else the CPU). Throws UsageError for a device this
/// build or machine does not have, saying how to get it.
std::shared_ptr<Device> make_device(std::string_view name, const DeviceOptions& options = {});

}  // namespace dtrain
