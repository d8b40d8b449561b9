// A CPU whose kernels are told to a translator while they run.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/onnx/translator.h"

namespace dtrain::onnx {

class TraceKernels final : public Kernels {
 public:
  /// Borrowed.
  explicit TraceKernels(Kernels& inner) : inner_(inner) {}

  Translator* translator = nullptr;  ///< null: nothing is traced

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) void name parameters override;
#include "runtime/device/kernels.def"

 private:
  /// Tells the translator that kernel `id` is called with what call() gets.
  template <KernelId id>
  struct Told {
    Translator* translator;
    std::string_view name;
    template <class... Arguments>
    void operator()(const Arguments&... arguments) const {
      if (translator != nullptr) translator->call<id>(name, arguments...);
    }
  };

  Kernels& inner_;
};

/// Computes as `inner`, which is a CPU. Used by one thread.
class TraceDevice final : public Device {
 public:
  explicit TraceDevice(std::shared_ptr<Device> inner);
  ~TraceDevice() override;

  /// From now on `translator`, which is borrowed, is told. Memory that is given back meanwhile stays valid
  /// until end().
  void begin(Translator& translator);
  void end() noexcept;

  DeviceType type() const noexcept override { return inner_->type(); }
  bool runs_ahead() const noexcept override { return inner_->runs_ahead(); }
  int index() const noexcept override { return inner_->index(); }
  std::string name() const override { return inner_->name(); }
  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  void* allocate_pinned(std::size_t bytes) override { return inner_->allocate_pinned(bytes); }
  void deallocate_pinned(void* memory, std::size_t bytes) noexcept override {
    inner_->deallocate_pinned(memory, bytes);
  }
  /// Throws UsageError where the host reads what was computed while it is traced: what it does with it would
  /// not be in the graph.
  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) override;
  Stream& compute_stream() noexcept override { return inner_->compute_stream(); }
  std::unique_ptr<Stream> make_stream() override { return inner_->make_stream(); }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  Kernels& kernels() noexcept override { return kernels_; }
  bool has_graphs() const noexcept override { return false; }
  std::unique_ptr<dtrain::Graph> record(const std::function<void()>& work) override;
  std::size_t allocated_bytes() const noexcept override { return inner_->allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return inner_->peak_allocated_bytes(); }

 private:
  std::shared_ptr<Device> inner_;
  TraceKernels kernels_;
  std::vector<std::pair<void*, std::size_t>> kept_;
};

}  // namespace dtrain::onnx
