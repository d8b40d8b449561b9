#include "runtime/device/timed_device.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/device/timed_kernels.h"

namespace dtrain {
namespace {

class TimedDevice final : public Device {
 public:
  TimedDevice(std::shared_ptr<Device> device, SpanRecorder& spans)
      : device_(std::move(device)), kernels_(device_->kernels(), device_->compute_stream(), spans) {}

  DeviceType type() const noexcept override { return device_->type(); }
  bool runs_ahead() const noexcept override { return device_->runs_ahead(); }
  int index() const noexcept override { return device_->index(); }
  std::string name() const override { return device_->name(); }
  bool is_emulated() const noexcept override { return device_->is_emulated(); }

  void* allocate(std::size_t bytes) override { return device_->allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) noexcept override { device_->deallocate(memory, bytes); }
  void* allocate_pinned(std::size_t bytes) override { return device_->allocate_pinned(bytes); }
  void deallocate_pinned(void* memory, std::size_t bytes) noexcept override {
    device_->deallocate_pinned(memory, bytes);
  }

  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) override {
    device_->copy(to, from, bytes, kind, stream);
  }

  Stream& compute_stream() noexcept override { return device_->compute_stream(); }
  std::unique_ptr<Stream> make_stream() override { return device_->make_stream(); }
  std::unique_ptr<Event> make_event() override { return device_->make_event(); }
  Kernels& kernels() noexcept override { return kernels_; }

  // Kernels inside a recording cannot be waited for, and so not timed.
  bool has_graphs() const noexcept override { return false; }
  std::unique_ptr<Graph> record(const std::function<void()>& /*work*/) override {
    throw UsageError("record: expected a device whose kernels are not timed, got a timed " + name());
  }

  std::size_t allocated_bytes() const noexcept override { return device_->allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return device_->peak_allocated_bytes(); }

 private:
  std::shared_ptr<Device> device_;
  TimedKernels kernels_;
};

}  // namespace

std::shared_ptr<Device> make_timed_device(std::shared_ptr<Device> device, SpanRecorder& spans) {
  return std::make_shared<TimedDevice>(std::move(device), spans);
}

}  // namespace dtrain
