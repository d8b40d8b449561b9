#include "runtime/device/cpu/cpu_device.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/thread_slot.h"
#include "runtime/device/checked_kernels.h"
#include "runtime/device/cpu/allocator.h"
#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/features.h"

namespace dtrain::cpu {
namespace {

class CpuStream final : public Stream {
 public:
  void synchronize() override {}
};

class CpuEvent final : public Event {
 public:
  void record(Stream&) override {}
  void make_wait(Stream&) override {}
  bool done() override { return true; }
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int index) : index_(index) {}

  DeviceType type() const noexcept override { return DeviceType::cpu; }
  bool runs_ahead() const noexcept override { return false; }
  int index() const noexcept override { return index_ < 0 ? 0 : index_; }
  std::string name() const override {
    return (index_ < 0 ? "cpu (" : "cpu:" + std::to_string(index_) + " (") + dense_math_name() + ")";
  }

  void* allocate(std::size_t bytes) override { return allocator_.allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) noexcept override { allocator_.deallocate(memory, bytes); }
  void* allocate_pinned(std::size_t bytes) override { return pinned_.allocate(bytes); }
  void deallocate_pinned(void* memory, std::size_t bytes) noexcept override {
    pinned_.deallocate(memory, bytes);
  }

  void copy(void* to, const void* from, std::size_t bytes, CopyKind, Stream&) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }

  Stream& compute_stream() noexcept override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  /// The first thread without a slot has a table of its own; others have those of their slots.
  Kernels& kernels() noexcept override {
    static thread_local const char thread = 0;  // its address stands for the thread
    if (thread_slot() != 0) return kernels_of(thread_slot());
    const void* first = first_thread_.load(std::memory_order_relaxed);
    if (first == nullptr && first_thread_.compare_exchange_strong(first, &thread)) first = &thread;
    return first == &thread ? kernels_ : kernels_of(lasting_thread_slot());
  }

  bool has_graphs() const noexcept override { return false; }
  std::unique_ptr<Graph> record(const std::function<void()>&) override {
    throw UsageError("device " + name() + ": has no graphs; work on it runs as it is queued");
  }

  std::size_t allocated_bytes() const noexcept override { return allocator_.allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return allocator_.peak_allocated_bytes(); }

 private:
  Kernels& kernels_of(int slot) {
    const std::lock_guard lock(slots_mutex_);
    const auto place = static_cast<std::size_t>(slot) - 1;
    if (place >= of_slots_.size()) of_slots_.resize(place + 1);
    if (!of_slots_[place]) of_slots_[place] = std::make_unique<CheckedKernels<CpuKernels>>();
    return *of_slots_[place];
  }

  const int index_;
  Allocator allocator_;
  Allocator pinned_;
  CpuStream stream_;
  CheckedKernels<CpuKernels> kernels_;
  std::atomic<const void*> first_thread_ = nullptr;
  std::mutex slots_mutex_;
  std::vector<std::unique_ptr<Kernels>> of_slots_;  ///< of thread slots from 1 on, as they are first used
};

}  // namespace

CpuKernels::CpuKernels() : math_(make_dense_math()) {}
CpuKernels::~CpuKernels() = default;

std::shared_ptr<Device> make_cpu_device(int index) {
  check_vector_limit();
  return std::make_shared<CpuDevice>(index);
}

}  // namespace dtrain::cpu
