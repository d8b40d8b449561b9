#include "runtime/onnx/trace_device.h"

#include "runtime/base/error.h"

namespace dtrain::onnx {

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  void TraceKernels::name parameters {                          \
    Told<KernelId::name>{translator, #name} arguments;          \
    inner_.name arguments;                                      \
  }
#include "runtime/device/kernels.def"

TraceDevice::TraceDevice(std::shared_ptr<Device> inner)
    : inner_(std::move(inner)), kernels_(inner_->kernels()) {}

TraceDevice::~TraceDevice() { end(); }

void TraceDevice::begin(Translator& translator) { kernels_.translator = &translator; }

void TraceDevice::end() noexcept {
  kernels_.translator = nullptr;
  for (const auto& [memory, bytes] : kept_) inner_->deallocate(memory, bytes);
  kept_.clear();
}

void* TraceDevice::allocate(std::size_t bytes) {
  void* const memory = inner_->allocate(bytes);
  if (kernels_.translator != nullptr) kernels_.translator->values().note_memory(memory, bytes);
  return memory;
}

void TraceDevice::deallocate(void* memory, std::size_t bytes) noexcept {
  if (kernels_.translator == nullptr) return inner_->deallocate(memory, bytes);
  kept_.emplace_back(memory, bytes);
}

void TraceDevice::copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) {
  if (Translator* const translator = kernels_.translator; translator != nullptr) {
    if (translator->values().is_computed(from))
      throw UsageError(
          "export: the network's forward pass looks at values on the host (item(), to_vector()), which a "
          "graph cannot contain; expected only operations on tensors");
    translator->values().forget(to, bytes);
  }
  inner_->copy(to, from, bytes, kind, stream);
}

std::unique_ptr<dtrain::Graph> TraceDevice::record(const std::function<void()>& /*work*/) {
  throw UsageError("record: expected a device with graphs, got one whose kernels are traced");
}

}  // namespace dtrain::onnx
