// The CUDA device behind the seam, and the module's entry points.
#include "runtime/device/cuda/cuda_device.h"

#include "runtime/device/checked_kernels.h"
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/details.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/cuda/notices.h"
#include "runtime/device/cuda/nvtx_ranges.h"
#include "runtime/device/cuda/stream.h"
#include "runtime/device/cuda/work.h"

namespace dtrain::cuda {
namespace {

cudaMemcpyKind native(CopyKind kind) {
  switch (kind) {
    case CopyKind::device_to_device:
      return cudaMemcpyDeviceToDevice;
    case CopyKind::host_to_device:
      return cudaMemcpyHostToDevice;
    case CopyKind::device_to_host:
      return cudaMemcpyDeviceToHost;
  }
  return cudaMemcpyDefault;
}

/// A recorded copy reads or writes its host memory whenever the graph runs: memory that nobody has pinned for
/// that is most often gone or another's by then, and CUDA would not say so.
void refuse_pageable_in_recording(const void* to, const void* from, std::size_t bytes, CopyKind kind,
                                  cudaStream_t stream) {
  if (kind == CopyKind::device_to_device) return;
  cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &recording), "ask whether a stream is being recorded");
  if (recording == cudaStreamCaptureStatusNone) return;
  const bool reads = kind == CopyKind::host_to_device;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, reads ? from : to), "ask what kind of memory a copy uses");
  if (attributes.type != cudaMemoryTypeUnregistered) return;
  throw DeviceError("cuda: copy of " + std::to_string(bytes) + " bytes " +
                        (reads ? "from host memory to the GPU" : "from the GPU to host memory") +
                        " while a graph is recorded: expected pinned host memory that lives as long as the "
                        "graph, got pageable "
                        "memory, which each run of the graph would " +
                        (reads ? "read" : "write") +
                        " again as it is then; copy before the recording, or use Device::allocate_pinned",
                    static_cast<int>(cudaErrorStreamCaptureUnsupported));
}

/// Makes the device current before any member creates something on it.
struct Current {
  explicit Current(int index) { check(cudaSetDevice(index), "choose GPU " + std::to_string(index)); }
};

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index),
        "ask for the properties of GPU " + std::to_string(index));
  return properties;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const DeviceOptions& options)
      : index_(index),
        current_(index),
        properties_(properties_of(index)),
        stream_(faults_, false),
        memory_(index, stream_.native()),
        kernels_(Context{stream_.native(), memory_, faults_, options, properties_.multiProcessorCount}) {}

  ~CudaDevice() override {
    static_cast<void>(cudaStreamSynchronize(stream_.native()));  // memory and plans go after the last kernel
  }

  DeviceType type() const noexcept override { return DeviceType::cuda; }
  bool runs_ahead() const noexcept override { return true; }
  int index() const noexcept override { return index_; }
  std::string name() const override {
    return "cuda:" + std::to_string(index_) + " (" + properties_.name + ")";
  }

#if DTRAIN_EMULATED_CUDA
  bool is_emulated() const noexcept override { return true; }
#endif

  void* allocate(std::size_t bytes) override {
    make_current();
    return memory_.allocate(bytes);
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override { memory_.deallocate(memory, bytes); }

  void* allocate_pinned(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable),
          "allocate " + std::to_string(bytes) + " bytes of pinned host memory");
    return memory;
  }
  void deallocate_pinned(void* memory, std::size_t) noexcept override {
    if (memory != nullptr) static_cast<void>(cudaFreeHost(memory));
  }

  // From pageable host memory the driver has taken its copy when this returns; from pinned memory the caller
  // keeps it until the stream is there.
  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) override {
    if (bytes == 0) return;
    make_current();
    refuse_pageable_in_recording(to, from, bytes, kind, cuda::native(stream));
    check(cudaMemcpyAsync(to, from, bytes, native(kind), cuda::native(stream)),
          "copy " + std::to_string(bytes) + " bytes");
  }

  Stream& compute_stream() noexcept override { return stream_; }
  std::unique_ptr<Stream> make_stream() override {
    make_current();
    return std::make_unique<CudaStream>(faults_, true);
  }
  std::unique_ptr<Event> make_event() override {
    make_current();
    return std::make_unique<CudaEvent>(faults_);
  }
  Kernels& kernels() noexcept override {
    make_current();
    return kernels_;
  }

  bool has_float16() const noexcept override { return true; }
  bool has_graphs() const noexcept override { return true; }
  std::unique_ptr<Graph> record(const std::function<void()>& work) override {
    make_current();
    return record_graph(stream_.native(), memory_, work);
  }

  std::size_t allocated_bytes() const noexcept override { return memory_.allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return memory_.peak_allocated_bytes(); }

 private:
  /// A process may have several GPUs, and a thread may come from another one's; what follows is this one's.
  /// An error comes back with what is asked of it next.
  void make_current() const noexcept { static_cast<void>(cudaSetDevice(index_)); }

  int index_;
  Current current_;
  cudaDeviceProp properties_;
  Faults faults_;
  CudaStream stream_;
  Memory memory_;
  CheckedKernels<CudaKernels> kernels_;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string summary() {
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  std::string text = driver == 0 ? "no driver" : "driver for CUDA " + version_text(driver);
  text += ", runtime " + version_text(runtime);
  const std::size_t blas = cublasLtGetVersion();
  text += ", cuBLASLt " + std::to_string(blas / 10000) + "." + std::to_string(blas % 10000 / 100);
#if DTRAIN_HAVE_CUDNN
  const std::size_t dnn = cudnnGetVersion();
  text += ", cuDNN " + std::to_string(dnn / 10000) + "." + std::to_string(dnn % 10000 / 100) + "." +
          std::to_string(dnn % 100);
#else
  text += ", no cuDNN";
#endif
  return text;
}

ModuleReport report() {
  ModuleReport report;
  report.summary = summary();
#if DTRAIN_EMULATED_CUDA
  report.emulated = true;
  report.summary = "emulated machine, no GPU: " + report.summary;
#endif
  const cudaError_t result = cudaGetDeviceCount(&report.devices);
  if (result == cudaSuccess && report.devices > 0) return report;
  static_cast<void>(cudaGetLastError());
  report.devices = 0;
  switch (result) {
    case cudaSuccess:
    case cudaErrorNoDevice:
      report.problem = "no GPU is visible (" + report.summary +
                       "); check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device cpu";
      break;
    case cudaErrorInsufficientDriver:
      report.problem = "the NVIDIA driver is missing or older than the CUDA runtime (" + report.summary +
                       "); install a driver for this runtime, or use device cpu";
      break;
    default:
      report.problem = std::string("the driver failed: ") + cudaGetErrorName(result) + ": " +
                       cudaGetErrorString(result) + " (" + report.summary + ")";
  }
  return report;
}

std::shared_ptr<Device> make(int index, const DeviceOptions& options) {
  return std::make_shared<CudaDevice>(index, options);
}

}  // namespace
}  // namespace dtrain::cuda

#define DTRAIN_MODULE_EXPORT extern "C" __attribute__((visibility("default")))

DTRAIN_MODULE_EXPORT const dtrain::ModuleHead* dtrain_cuda_module() {
  static constexpr dtrain::ModuleHead kHead{dtrain::cuda::kModuleInterface, DTRAIN_VERSION};
  return &kHead;
}

DTRAIN_MODULE_EXPORT const dtrain::cuda::DevicePlugin* dtrain_cuda_device() {
  static constexpr dtrain::cuda::DevicePlugin kPart{
      dtrain::cuda::report,      dtrain::cuda::make,      dtrain::cuda::find_details,
      dtrain::cuda::nvtx_ranges, dtrain::cuda::work_part, dtrain::cuda::listen_to_notices};
  return &kPart;
}
